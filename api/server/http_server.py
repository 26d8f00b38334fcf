"""The HTTP server: waitress on a socket that is bound already, with a guard in front and JSON in its errors.

Out of the box waitress serves 100 connections in all and lets each be silent for two minutes, so a hundred half-sent
requests of one client stop it for everybody. Here a request has an absolute deadline, for its head and for all of it,
and one address has only so many connections.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from actors.net.client_key import client_key
from actors.net.descriptor_exhaustion import ACCEPT_PAUSE, OUT_OF_DESCRIPTORS
from actors.supervision.listeners.registry import BACKLOG
from actors.throttled_log import ThrottledLog
from api.concurrency_limit import EXPORTS_MAX, TAILS_MAX
from api.http.body import MAX_BODY
from api.http.environ import AFTER_RESPONSE
from api.security.password_checker import AT_ONCE
from api.server.channel import Channel
from api.server.connection_limits import per_address
from api.server.draining_listener import DrainingListener
from api.server.parser import Bodies
from api.server.rejected_requests import Refused
from api.server.tasks import MAX_HEAD

log = logging.getLogger(__name__)
logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # a queue of a few requests is nobody's business

THREADS = 8 + AT_ONCE + TAILS_MAX + EXPORTS_MAX
"""Enough for all that may wait for a password to be hashed, for records or for a client that reads many, and for the
others beside them."""
IDLE_TIMEOUT = 60
NO_CONNECTIONS = 2
"""What waitress counts as connections and aren't: the listener and the trigger of its loop."""
OnRefused = Callable[[Refused], dict[str, str]]


class _Server(TcpWSGIServer):  # type: ignore[misc]
    """waitress with a cap for each address and deadlines for requests."""

    channel_class = Channel
    per_address = 0
    behind_tls = False
    on_refused: OnRefused
    crowds: ThrottledLog
    laggards: ThrottledLog
    scarcity: ThrottledLog
    accepts_from = 0.0
    """When connections are accepted again, of the monotonic clock."""
    last_requests_since: float | None = None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.older_addresses: list[DrainingListener] = []
        super().__init__(*arguments, **options)

    def getsockname(self) -> tuple[str, Any]:
        return ("localhost", 443) if self.socket.family == socket.AF_UNIX else super().getsockname()

    def fix_addr(self, addr: Any) -> Any:
        return ("", 0) if self.behind_tls else addr

    def set_socket_options(self, conn: socket.socket) -> None:
        if not self.behind_tls:
            super().set_socket_options(conn)

    def readable(self) -> bool:
        return bool(super().readable()) and not self.breathes

    @property
    def breathes(self) -> bool:
        """Whether no connection is accepted for a moment, since there was no descriptor for the last one."""
        return time.monotonic() < self.accepts_from

    def handle_accept(self) -> None:
        self.let_in(self)

    def let_in(self, door: Any) -> bool:
        """Accept one connection at a listening socket of ours; whether somebody was there."""
        try:
            accepted = door.accept()
            if accepted is None:
                return False
            self.set_socket_options(accepted[0])
        except OSError as error:  # the client is gone again, or there is no descriptor for it
            if error.errno in OUT_OF_DESCRIPTORS:
                self.accepts_from = time.monotonic() + ACCEPT_PAUSE
                self.scarcity.error(error)
            return False
        connection, address = accepted
        channel = self.channel_class(self, connection, self.fix_addr(address), self.adj, map=self._map)
        channel.outdated_since = None if door is self else time.monotonic()
        if not self.behind_tls and self._connections_of(channel.addr[0]) > self.per_address:
            self.crowds.error(f"one client has more than {self.per_address}", logging.WARNING)
            channel.handle_close()
        return True

    def maintenance(self, now: float) -> None:
        super().maintenance(now)
        moment = time.monotonic()
        for channel in tuple(self.active_channels.values()):
            if channel.stalled(moment):  # its socket never gets writable, so nobody would come to close it
                channel.handle_close()
                continue
            if channel.overdue(moment) or channel.lapsed(moment):
                if channel.loiters and not channel.will_close:
                    self.laggards.error("their requests did not come in time", logging.WARNING)
                channel.will_close = True

    def limit(self, max_connections: int) -> None:
        """How many connections there may be in all, and of one address."""
        self.adj.connection_limit = max_connections + NO_CONNECTIONS
        self.per_address = per_address(max_connections)

    def end_idle(self) -> None:
        """Answers end their connections from now on; those that are silent are closed. Server thread."""
        now = time.monotonic()
        if self.last_requests_since is None:
            self.last_requests_since = now
        for channel in tuple(self.active_channels.values()):
            if channel.between_requests and not channel.may_send_more(now - self.last_requests_since):
                channel.close_when_flushed = True

    def close(self) -> None:
        """The listener alone: the trigger is for whoever may still pull it (see `ApiServer.close`). Server thread."""
        wasyncore.dispatcher.close(self)

    def move(self, listener: socket.socket) -> None:
        """Accept at `listener` instead. Server thread."""
        for channel in tuple(self.active_channels.values()):
            channel.outdated_since = channel.outdated_since or time.monotonic()
        self.del_channel()
        self.older_addresses.append(DrainingListener(self, self.socket))
        listener.setblocking(False)
        self.set_socket(listener)
        self.effective_host, self.effective_port = listener.getsockname()[:2]
        self.sockinfo = (listener.family, listener.type, listener.proto, listener.getsockname())

    def leave(self) -> None:
        """The last ones have come to the address before. Server thread."""
        for older in self.older_addresses[:1]:
            older.let_in_all()
            older.close()
        del self.older_addresses[:1]

    def _connections_of(self, address: str) -> int:
        client = client_key(address)
        return sum(client_key(channel.addr[0]) == client for channel in tuple(self.active_channels.values()))


class _NotifyingBody:
    """The body of a response; `after_response` is called when all of it was written."""

    def __init__(self, body: Iterable[bytes], after_response: Callable[[], None]) -> None:
        self._body = body
        self._after_response = after_response

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        self._after_response()


def _notifying(environ: dict[str, Any], body: Iterable[bytes]) -> Iterable[bytes]:
    after = environ.get(AFTER_RESPONSE)
    return body if after is None else _NotifyingBody(body, after)


def _of_no_interest(_refused: Refused) -> dict[str, str]:
    return {}


class ApiServer:
    """waitress in threads of its own, so that the main thread is free for the bus."""

    def __init__(
        self,
        application: Callable[..., Any],
        listener: socket.socket,
        max_connections: int,
        behind_tls: bool = False,
        on_refused: OnRefused = _of_no_interest,
    ) -> None:
        """`behind_tls`: each connection begins with a header of the PROXY protocol, and was TLS to its client.

        `on_refused` is told of each request that the application never sees, and gives headers for its answer.
        """
        self._map: dict[int, Any] = {}
        adjustments = Adjustments(
            sockets=[listener],
            threads=THREADS,
            backlog=BACKLOG,
            connection_limit=max_connections,
            cleanup_interval=1,
            channel_timeout=IDLE_TIMEOUT,
            max_request_header_size=MAX_HEAD,
            max_request_body_size=sys.maxsize,  # the parser asks the application about large ones
            inbuf_overflow=MAX_BODY,
            asyncore_use_poll=True,
            clear_untrusted_proxy_headers=False,  # the application judges X-Forwarded-For itself
            ident=None,
            url_scheme="https" if behind_tls else "http",
            log_socket_errors=False,
        )
        self.bodies = adjustments.bodies = Bodies()
        self._dispatcher = ThreadedTaskDispatcher()
        self._dispatcher.set_thread_count(THREADS)
        self._server = _Server(
            lambda environ, start: _notifying(environ, application(environ, start)),
            self._map,
            _sock=listener,
            dispatcher=self._dispatcher,
            adj=adjustments,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
            bind_socket=False,
        )
        self._server.behind_tls = behind_tls
        self._server.on_refused = on_refused
        self._server.crowds = ThrottledLog(log, "connections are closed")
        self._server.scarcity = ThrottledLog(log, "connections can't be accepted")
        self._server.laggards = ThrottledLog(log, "connections are ended")
        self._server.limit(max_connections)
        self._thread = threading.Thread(target=self._server.run, name="http", daemon=True)

    def start(self) -> None:
        """Accept connections from now on."""
        self._thread.start()

    def limit(self, max_connections: int) -> None:
        """For the connections to come."""
        self._server.trigger.pull_trigger(lambda: self._server.limit(max_connections))

    def move(self, listener: socket.socket) -> None:
        """Accept at `listener` from now on. Older connections end between two requests.

        Who has begun to connect to the old socket is still let in, until `leave` is called.
        """
        self._server.trigger.pull_trigger(lambda: self._server.move(listener))

    def leave(self) -> None:
        """Close the old socket: `DRAIN_SECONDS` seconds after each `move`."""
        self._server.trigger.pull_trigger(self._server.leave)

    def last_requests(self) -> None:
        """Every connection ends with its next answer, or soon if it sends nothing. To be called again and again."""
        self._server.trigger.pull_trigger(self._server.end_idle)

    def stop_accepting(self) -> None:
        """No new connections; those that are there end as with `last_requests`. The socket itself stays open."""
        self._server.trigger.pull_trigger(self._stop_in_thread)

    def idle(self) -> bool:
        """Whether no request is under way, once `stop_accepting` was called."""
        if not self._thread.is_alive():
            return True
        self.stop_accepting()  # again: connections whose request has ended meanwhile are to be closed
        return not self._server.accepting and not self._server.active_channels

    def close(self) -> None:
        """End the threads. To be called once.

        The trigger outlives them all. waitress writes to its pipe after it has handed over what is to be done, so that
        the server's thread may have done it already; were the pipe closed by then, the write would meet a closed
        descriptor, or one that is somebody else's by now. A thread that doesn't end keeps the pipe.
        """
        self._server.trigger.pull_trigger(self._close_in_thread)
        self._dispatcher.shutdown(timeout=1)
        if self._thread.is_alive():
            self._thread.join(1.0)
        if not self._thread.is_alive() and not self._dispatcher.threads:
            self._server.trigger.close()

    def _stop_in_thread(self) -> None:
        self._server.accepting = False
        self._server.end_idle()

    def _close_in_thread(self) -> None:
        for each in tuple(self._map.values()):
            if each is not self._server.trigger:
                each.close()
        self._map.clear()
