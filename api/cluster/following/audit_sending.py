"""Entries of this node's audit trail that no commit brings to the database.

Those of a full node go with its next commit. What no commit has brought by the next heartbeat, such as a sign-in, is
sent after it, as an edge node, which makes no commit, sends all; and when everything was read anew.
"""

from __future__ import annotations

import json
import logging

from actors.cluster.database import REPORT, Database
from actors.cluster.errors import DatabaseError
from actors.log_lines import ThrottledLog
from api.audit.trail import Trail
from api.cluster.following.heartbeat import Beat
from api.store import StoreError

log = logging.getLogger(__name__)

WITHIN = 60.0
"""Seconds of one statement."""
PAGE = 5_000
"""Entries that are sent at once."""
OF_BEAT = 500
"""Entries that are sent after one heartbeat, which the next one waits for."""

_LAST = "SELECT coalesce(max(seq), 0) FROM proxyfleet.audit WHERE node = %s"
_ADD = "SELECT proxyfleet.add_audit(%s, %s)"


class AuditSending:
    """That of one node."""

    def __init__(self, database: Database, node: str, trail: Trail) -> None:
        self._database = database
        self._node = node
        self._trail = trail
        self._sent: int | None = None
        """The last entry that the database has, once that is known."""
        self._log = ThrottledLog(log, "entries of the audit trail wait for the database")

    @property
    def waiting(self) -> int:
        """The number of entries that the database lacks."""
        return self._trail.waiting if self._sent is None else max(0, self._trail.head.seq - self._sent)

    def send(self, most: int | None = None, within: float = WITHIN) -> None:
        """Send what the database lacks, of that the first `most` entries. Raises `DatabaseError`, `StoreError`."""
        with self._database.session() as session:
            ((last,),) = session.transaction(_LAST, [self._node], REPORT)
            entries = self._trail.after(last)[:most]
            for start in range(0, len(entries), PAGE):
                session.transaction(_ADD, [self._node, json.dumps(entries[start : start + PAGE])], within)
        self._sent = entries[-1][0] if entries else last

    def on_audited(self, last: int) -> None:
        """The database has the entries up to this one."""
        self._sent = last

    def on_heartbeat(self, _beat: Beat) -> None:
        """Send some of them, if there are new ones, after a heartbeat."""
        try:
            if self._sent is None or self._trail.head.seq > self._sent:
                self.send(OF_BEAT, REPORT)
        except (DatabaseError, StoreError) as error:
            self._log.error(str(error))
