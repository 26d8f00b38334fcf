"""The audit trail: who changed what, by which credential, from where, with what before and after.

`trail` is the file and its hash chain, `masking` leaves secrets out of changes, `context` knows whose request is
served, `store` is the configuration store that writes an entry before every change.

**A change is never unaudited.** The entry of a change of the configuration is on the disk before the change is. When
the store then refuses the change, a second entry says so (`outcome` `failed`, `details.of` the first one's number). A
crash between the two leaves an entry of a change that was never made, and no response to the client; never the other
way round. Actions that change no configuration (a restart, a test, closing connections) have their entry before the
response.
"""

from __future__ import annotations

from api.audit.context import Origin, origin, serving
from api.audit.store import AuditedStore, resource_named
from api.audit.trail import Broken, Entry, Head, Selection, Trail, verify

__all__ = [
    "AuditedStore",
    "Broken",
    "Entry",
    "Head",
    "Origin",
    "Selection",
    "Trail",
    "origin",
    "resource_named",
    "serving",
    "verify",
]
