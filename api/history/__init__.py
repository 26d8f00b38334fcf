"""Revisions of the configuration: what each change altered, so that an earlier state can be read and restored.

**What a revision is.** The changes of one commit: of proxies, users, API keys, webhooks, overrides of settings, plans,
accounts, lists, pools and policies (`KINDS`), whichever of the two stores has them; an import or a batch of 10,000
accounts is one. They have one numbering, from 1, without gaps. Credentials of accounts and sign-ins are not
configuration and have no revisions; nor has a new hash of the same password.

**Where they are kept.** In tables of their own (`tables`) in the file of the audit trail, because an entry of the
trail is on the disk before each change anyway: the revision is part of that transaction (`recorder`), so it costs no
further sync. Unlike the trail these tables are pruned, by age, number and size.

An import of hundreds of thousands of accounts writes its changes in parts, each with its audit entries; one more
transaction before the commit makes them a revision. Changes that never become one are deleted later.

**None is missing, none is there that was not made.** Changes of both stores are made one at a time, under one lock,
so only the last revision can be one whose change was never made. A change that the store refuses takes its revision
back. A kill between revision and change is found at the next start: each revision has the step of its store before
the change, and a document that is unchanged since that step says that the change was not made (`Recorder.settle`). In
a backup, where the trail is copied after the stores, that may be several revisions; a restore removes them in the
same way. When a disk fails so that only a restart will show what it holds, the revision stays `undecided`, which
readers omit, until then.

**How a state is reconstructed.** Each change has the whole document before and after it, so nothing is derived from a
chain (`documents`). The state after revision N is the present one with, for each document that was changed later, its
body before the first of these changes (`Reader.between`). So 10,000 revisions hold 10,000 changes, not 10,000 copies.

**Secrets** that the store has sealed are sealed here, too; hashes of passwords and keys are sealed in addition, so that
the file of the audit trail has none. Without the key of the installation they are `LOST`. Every view masks secrets, as
the audit trail does.
"""

from __future__ import annotations

from api.history.documents import COLLECTIONS, KINDS, LOST, Body, DocumentChange, is_renewed, kind_of
from api.history.reader import Key, Reader, Revision, RevisionSelection, Summary
from api.history.recorder import Limits, Recorder, StagedChanges
from api.history.tables import NO_PURPOSE, SCHEMA, Probe, Purpose

__all__ = [
    "COLLECTIONS",
    "KINDS",
    "LOST",
    "NO_PURPOSE",
    "SCHEMA",
    "Body",
    "DocumentChange",
    "Key",
    "Limits",
    "Probe",
    "Purpose",
    "Reader",
    "Recorder",
    "Revision",
    "RevisionSelection",
    "StagedChanges",
    "Summary",
    "is_renewed",
    "kind_of",
]
