"""The audit trail: who changed what, by which credential, from where, with what before and after.

`trail` is the file and its hash chain, `masking` what of a change is shown, `context` whose request is being served,
`store` the configuration store that writes a row before every change.

**A change is never unaudited.** The row of a change of the configuration is on the disk before the change is. When the
store then refuses the change, a second row says so (`outcome` `failed`, `details.of` the first row's number). A crash
between the two leaves a row of a change that was never made, and no answer to the client; never the other way round.
Actions that change no configuration (a restart, a test, ending connections) have their row before they are answered.
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
