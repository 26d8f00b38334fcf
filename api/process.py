"""The API process: the bus in the main thread, HTTP in the others, the configuration store between them."""

from __future__ import annotations

import gc
import logging
import shutil
import socket
import tempfile
import time
from collections.abc import Collection
from typing import Any

from actors.bus.loop import THREADED_WAIT
from actors.bus.mailbox import ASK_TIMEOUT, Answer, refuse
from actors.bus.messages.common import SUPERVISOR, Done
from actors.bus.messages.fleet import DrainConnections, ReplaceProxies
from actors.net.listener_drain import DRAIN_SECONDS
from actors.process import Actor, Boot
from api.app import create_app
from api.bus_bridge import LoopBridge, reason_of
from api.container import ApiSettings, Services
from api.cpu_affinity import pin_to_one_core
from api.security.signing import SigningKeys
from api.server.http_server import ApiServer
from api.server.listener_handover import ListenerReceiver
from api.server.rejected_requests import RejectedRequestLog
from api.services.password_reset import PasswordResetHandler
from api.services.webhook_sync import WebhookLink
from api.store import StoreError, open_store
from config.files.paths import DataDir, PathError, private_directory

log = logging.getLogger(__name__)

IDLE_CHECK = 0.02
"""Seconds between looks at whether the last request is finished, while the actor drains."""


class ApiActor(Actor):
    """Serves the management API on `sockets[0]`, which the supervisor has bound.

    `boot.settings` is what `config.settings.settings.plain` gives. `boot.params`: `supervisor_pid`; `behind_tls`,
    whether `sockets[0]` is where the TLS front connects to (`api.server.tls_terminator`).
    """

    longest_wait = THREADED_WAIT

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        """Open the store, tell the supervisor the wish, and serve. Ends the process when there is no usable store."""
        pin_to_one_core()
        super().__init__(boot, sockets)
        settings = ApiSettings.from_plain(boot.settings)
        self._bridge = LoopBridge(self.loop, self.mailbox, self.events)
        try:
            keep_temporary_files_in(self.data_dir)
            self._store = open_store(self.data_dir)
            keys = SigningKeys(self.data_dir)
            pid = boot.params.get("supervisor_pid")
            self._services = Services(self._store, self._bridge, settings, keys, self.data_dir, pid)
        except (StoreError, PathError) as error:
            log.critical("the API can't start: %s", error)
            raise SystemExit(1) from None
        behind = bool(boot.params.get("behind_tls"))
        application, refusals = create_app(self._services), RejectedRequestLog(self._services)
        self._server = ApiServer(application, sockets[0], settings.server.max_connections, behind, refusals)
        self._webhooks = WebhookLink(self._services.webhooks, self.mailbox, self._bridge)
        services = self._services
        self._password_resets = PasswordResetHandler(
            services.store, services.login_throttle, services.publish, services.data, self._bridge
        )
        self._door = None if behind else ListenerReceiver(self.loop, self.run_dir.api_door, self._move)
        self._services.on_moved = lambda: self._bridge.call(self._pass_through)
        self._services.on_max_connections = self._server.limit
        _warn_of_a_locked_door(settings)
        self._tell_wish()

    def receive(self, sender: str, message: Any, answer: Answer) -> None:
        """The TLS front ends, or the webhook sender or the command line has something to ask."""
        if isinstance(message, DrainConnections):
            self._last_requests()
            answer(Done())
        elif not (self._webhooks.receive(message, answer) or self._password_resets.receive(message, answer)):
            refuse(sender, message, answer)

    def settings_changed(self, _groups: Collection[str]) -> None:
        """See `Actor`: the configuration was read again. Changes through the API come as its own reply."""
        self._services.reread(ApiSettings.from_plain(dict(self.settings)))

    def drain(self, seconds: float) -> None:
        """Finish the requests under way, then end."""
        self._services.ending.set()
        self._server.stop_accepting()
        deadline = time.monotonic() + seconds

        def look() -> None:
            if self._server.idle() or time.monotonic() >= deadline:
                self.finish()
            else:
                self.loop.call_later(IDLE_CHECK, look)

        self.loop.call_later(IDLE_CHECK, look)

    def _last_requests(self) -> None:
        """The TLS front ends: its connections are ended, and what it still brings is served."""
        self._server.last_requests()
        if not self._stopping:
            self.loop.call_later(IDLE_CHECK, self._last_requests)

    def close(self) -> None:
        """End the threads, then give everything back."""
        if self._door is not None:
            self._door.close()
        self._bridge.close()
        self._server.close()
        self._services.close()
        self._store.close()
        super().close()

    def _move(self, listener: socket.socket) -> None:
        self._server.move(listener)
        self.loop.call_later(DRAIN_SECONDS, self._server.leave)

    def _pass_through(self) -> None:
        if self._door is not None:
            self._door.pass_through()

    def _tell_wish(self) -> None:
        """The supervisor may have missed a change when the API died; requests are served when it has it all."""
        wish = ReplaceProxies(self._services.proxies.specs())
        self.mailbox.ask(SUPERVISOR, wish, self._wish_told, ASK_TIMEOUT)

    def _wish_told(self, reply: Any) -> None:
        if isinstance(reply, Done):
            gc.freeze()  # what was read stays as a rule, and much of it makes a collection long
            self._server.start()
            self.ready()
            self._webhooks.tell()
        else:
            log.error("the supervisor rejected the proxy configuration: %s", reason_of(reply))
            self.loop.call_later(ASK_TIMEOUT / 10, self._tell_wish)


def keep_temporary_files_in(data: DataDir) -> None:
    """Large bodies never lie in /tmp. What an earlier process left is deleted. Raises `PathError`."""
    folder = data.temporary
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass  # the first start
    except OSError as error:
        raise PathError(f"{folder}: cannot be emptied: {error.strerror}") from error
    tempfile.tempdir = str(private_directory(folder))


def _warn_of_a_locked_door(settings: ApiSettings) -> None:
    server = settings.server
    if settings.security.https_only and not server.tls.enabled and not server.trusted_proxies:
        log.warning("security.https_only without server.tls or server.trusted_proxies: all requests will be refused")
