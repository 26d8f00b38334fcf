"""Sends the desired state to the supervisor: each change at once, or all of it as soon as the supervisor replies.

Of all proxies only those are sent that the supervisor doesn't have in their present revision. A change is made when the
store has it. A supervisor that does not reply then (it is stopped, or the machine is
overloaded) can't undo it, so the change isn't reported as failed; the supervisor gets the whole desired state as soon
as it replies. One that died reads the store at its next start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.supervision import AwaitProxy, DesiredRevisions, QueryDesired, ReplaceProxies
from api.bus_bridge import Bridge, reason_of
from api.errors import PeerUnavailable
from api.store import StoreError

log = logging.getLogger(__name__)

START_WAIT = 3.0
"""Seconds that a create, start or restart waits until the new process serves; then `runtime.state` says `starting`."""
REPLACE_TIMEOUT = 30.0
"""Seconds that the supervisor may take to apply the whole desired state: it may have thousands of addresses to bind."""
RETRY_INTERVAL = 1.0
"""Seconds between attempts to reach a supervisor that doesn't reply."""


class SupervisorLink:
    """See the module. Thread-safe.

    `state` gives the whole desired state for a supervisor that knows these revisions of proxies; `lock` holds up its
    changes, or raises `PeerUnavailable`; `sent` is called after each message to the supervisor, which may change the
    runtime state.
    """

    def __init__(
        self,
        bridge: Bridge,
        state: Callable[[Mapping[str, int]], ReplaceProxies],
        lock: Callable[[], AbstractContextManager[None]],
        sent: Callable[[], None],
    ) -> None:
        self._bridge = bridge
        self._state = state
        self._lock = lock
        self._sent = sent
        self._closed = threading.Event()
        self._resync: threading.Thread | None = None

    def apply(self, message: Any) -> None:
        """Send a change that is stored already. The caller holds up other changes."""
        reply = self._ask(message)
        if not isinstance(reply, Done):
            self.resync(reply)

    def apply_all(self) -> None:
        """Send changes of many proxies that are stored already. The caller holds up other changes."""
        reply = self.replace_all()
        if not isinstance(reply, Done):
            self.resync(reply)

    def replace_all(self, timeout: float = REPLACE_TIMEOUT) -> Any:
        """Send the whole desired state; the supervisor's reply. The caller holds up changes."""
        known = self._ask(QueryDesired())
        return self._ask(self._state(known.proxies), timeout) if isinstance(known, DesiredRevisions) else known

    def request(self, message: Any) -> None:
        """Have something done that is not stored. Raises `PeerUnavailable`."""
        reply = self._ask(message)
        if not isinstance(reply, Done):
            raise PeerUnavailable(SUPERVISOR, reason_of(reply))

    def resync(self, reply: Any) -> None:
        """Send the whole desired state later, since the supervisor lacks a part of it. The caller holds up changes."""
        if self._resync is None and not self._closed.is_set():
            log.error("the supervisor does not reply, it gets the change later: %s", reason_of(reply))
            self._resync = threading.Thread(target=self._run_resync, name="resync", daemon=True)
            self._resync.start()

    def await_start(self, proxy_id: str, wake: bool = False) -> None:
        """Return when the process of the proxy serves, or failed, or after `START_WAIT` seconds.

        `wake`: a proxy that sleeps is started.
        """
        if self._resync is None:  # else the supervisor doesn't reply to this either
            self._ask(AwaitProxy(proxy_id, START_WAIT, wake), START_WAIT + RETRY_INTERVAL)

    def close(self) -> None:
        """Send nothing more: the next API sends everything at its start."""
        self._closed.set()

    def _ask(self, message: Any, timeout: float = 5.0) -> Any:
        reply = self._bridge.ask(SUPERVISOR, message, timeout)
        self._sent()
        return reply

    def _run_resync(self) -> None:
        while not self._closed.wait(RETRY_INTERVAL):
            try:
                with self._lock():
                    if self._send_all():
                        return
            except (PeerUnavailable, StoreError) as error:
                log.warning("cannot send changes to the supervisor yet: %s", error)

    def _send_all(self) -> bool:
        if not isinstance(self.replace_all(), Done):
            return False
        self._resync = None
        log.info("the supervisor has all changes again")
        return True
