"""What is stored, told to the supervisor: at once, or as soon as it can be told.

A change is made when the store has it. A supervisor that does not answer then (it is stopped, or the machine is
overloaded) can't undo it, so the change isn't reported as failed; the supervisor gets the whole desired state as soon
as it answers. One that died reads the store at its next start.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.supervision import AwaitProxy, ReplaceProxies
from api.bus_bridge import Bridge, reason_of
from api.errors import PeerUnavailable
from api.store import StoreError

log = logging.getLogger(__name__)

START_WAIT = 3.0
"""Seconds that a create, start or restart waits until the new process serves; then `runtime.state` says `starting`."""
AGAIN = 1.0
"""Seconds between attempts to tell a supervisor that doesn't answer."""


class SupervisorLink:
    """See the module. Thread-safe.

    `specs` gives the whole desired state; `hold` lets nobody change it meanwhile, or raises `PeerUnavailable`; `told`
    is called when the supervisor was told something, after which the fleet is another.
    """

    def __init__(
        self,
        bridge: Bridge,
        specs: Callable[[], tuple[ProxySpec, ...]],
        hold: Callable[[], AbstractContextManager[None]],
        told: Callable[[], None],
    ) -> None:
        self._bridge = bridge
        self._specs = specs
        self._hold = hold
        self._told = told
        self._closed = threading.Event()
        self._catching_up: threading.Thread | None = None

    def tell_stored(self, message: Any) -> None:
        """Tell what the store has already. The caller holds up other changes."""
        reply = self._bridge.ask(SUPERVISOR, message)
        self._told()
        if not isinstance(reply, Done):
            self.fell_behind(reply)

    def demand(self, message: Any) -> None:
        """Have something done that is not stored. Raises `PeerUnavailable`."""
        reply = self._bridge.ask(SUPERVISOR, message)
        self._told()
        if not isinstance(reply, Done):
            raise PeerUnavailable(SUPERVISOR, reason_of(reply))

    def fell_behind(self, reply: Any) -> None:
        """The supervisor doesn't know all that is stored. The caller holds up other changes."""
        if self._catching_up is None and not self._closed.is_set():
            log.error("the supervisor does not reply, it gets the change later: %s", reason_of(reply))
            self._catching_up = threading.Thread(target=self._catch_up, name="catch-up", daemon=True)
            self._catching_up.start()

    def await_start(self, proxy_id: str) -> None:
        """Return when the process of the proxy serves, or failed, or after `START_WAIT` seconds."""
        if self._catching_up is None:  # it doesn't answer this either
            self._bridge.ask(SUPERVISOR, AwaitProxy(proxy_id, START_WAIT), START_WAIT + AGAIN)
            self._told()

    def close(self) -> None:
        """Tell nothing more: the next API tells everything at its start."""
        self._closed.set()

    def _catch_up(self) -> None:
        while not self._closed.wait(AGAIN):
            try:
                with self._hold():
                    if self._tell_all():
                        return
            except (PeerUnavailable, StoreError) as error:
                log.warning("cannot send changes to the supervisor yet: %s", error)

    def _tell_all(self) -> bool:
        if not isinstance(self._bridge.ask(SUPERVISOR, ReplaceProxies(self._specs())), Done):
            return False
        self._catching_up = None
        self._told()
        log.info("the supervisor has all changes again")
        return True
