"""The HTTP server: waitress on a socket that is bound already, with a guard in front and JSON in its errors.

By default waitress serves 100 connections in all and allows each two minutes of silence, so a hundred half-sent
requests of one client stop it for all others. Here a request has absolute deadlines, for its head and for all of it,
and the connections of one address are limited.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from actors.log_lines import ThrottledLog
from actors.net.accepting import ACCEPT_PAUSE, OUT_OF_DESCRIPTORS
from actors.net.client_key import client_key, per_address
from actors.supervision.listeners.bind import BACKLOG
from api.concurrency_limit import COUNTS_MAX, EXPORTS_MAX, REVISIONS_MAX, TAILS_MAX
from api.http.body import MAX_BODY
from api.security.password_checker import AT_ONCE
from api.server.channel import Channel, ChannelPhase
from api.server.parser import Bodies
from api.server.sockets import Sockets
from api.server.tasks import MAX_HEAD, RejectedRequest

log = logging.getLogger(__name__)
logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # that requests wait for a thread is no news

THREADS = 8 + AT_ONCE + TAILS_MAX + EXPORTS_MAX + COUNTS_MAX + 2 * REVISIONS_MAX
"""Enough for all requests that may wait for the hash of a password, for another node, for records or for a client that
reads many, and for others at the same time."""
THREADS_AT_START = 4
"""The others are started when there is a request for them, and stay: each takes a third of a MB."""
OWN_SOCKETS = 2
"""That waitress counts as connections: the listener and the trigger of its loop."""
TURN = 1.0
"""Seconds between two turns of the loop at most."""
OnRejected = Callable[[RejectedRequest], dict[str, str]]


class _Threads(ThreadedTaskDispatcher):
    """waitress's threads, up to `THREADS`, of which one more is started when none is idle."""

    def __init__(self) -> None:
        super().__init__()
        self._most = THREADS
        self.set_thread_count(min(THREADS_AT_START, THREADS))

    def add_task(self, task: Any) -> None:
        super().add_task(task)
        with self.lock:
            idle = len(self.threads) - self.stop_count - self.active_count
            wanted = len(self.threads) + (len(self.queue) > idle)
        if len(self.threads) < wanted <= self._most:
            self.set_thread_count(wanted)

    def start_new_thread(self, target: Callable[[int], None], thread_no: int) -> None:
        try:
            super().start_new_thread(target, thread_no)
        except RuntimeError as error:  # the task waits for those that there are
            log.warning("no further thread for requests: %s", error)
            self.threads.discard(thread_no)
            self.active_count -= 1  # waitress counts it as started

    def shutdown(self, cancel_pending: bool = True, timeout: float = 5) -> Any:
        self._most = 0
        return super().shutdown(cancel_pending, timeout)


class _Server(TcpWSGIServer):
    """waitress with a limit for each address and deadlines for requests. All in the server's thread but `__init__`, and
    what the threads that serve call: `add_task` and `pull_trigger`."""

    channel_class = Channel
    accepting: bool
    in_connection_overflow: bool

    def __init__(
        self,
        application: Callable[..., Any],
        sockets: Sockets,
        *,
        behind_tls: bool,
        on_rejected: OnRejected,
        **options: Any,
    ) -> None:
        self.behind_tls = behind_tls
        self.on_rejected = on_rejected
        self.per_address = 0
        self.connections: Counter[str] = Counter()
        """By client, as `client_key` has it."""
        self.draining_since: float | None = None
        self._resume_accepting_at = self._next_maintenance = 0.0
        self._full_log = ThrottledLog(log, "connections wait to be accepted")
        self._crowded_log = ThrottledLog(log, "connections are closed")
        self._descriptors_log = ThrottledLog(log, "connections can't be accepted")
        self._overdue_log = ThrottledLog(log, "connections are ended")
        self.buffers_log = ThrottledLog(log, "responses can't be kept until they are sent")
        self._thread_id = 0
        self.sockets = sockets
        self.serving = threading.local()
        super().__init__(application, sockets, **options)

    def run(self) -> None:
        self._thread_id = threading.get_ident()
        while self.sockets:
            try:
                if time.monotonic() >= self._next_maintenance:
                    self._next_maintenance = time.monotonic() + self.adj.cleanup_interval
                    self.sockets.ask_all()
                    self.maintenance(time.monotonic())
                self.sockets.changed(self._fileno)  # whether one is accepted depends on all others
                self.sockets.turn(min(TURN, self._pause_left) or TURN)
            except Exception:  # without this thread the API would be dead, unnoticed
                log.exception("a turn of the server's loop has failed")
                time.sleep(TURN)

    @property
    def is_this_thread(self) -> bool:
        """Whether the caller is in the server's thread."""
        return threading.get_ident() == self._thread_id

    def pull_trigger(self) -> None:
        """Called by a thread after a change of the channel that it serves, which it has put into `serving`."""
        if self.sockets.resume(self.serving.channel):
            super().pull_trigger()

    def add_task(self, task: Channel) -> None:
        """Have the first request of a connection served, or the next one when the response before it is sent."""
        if self.is_this_thread:
            super().add_task(task)
        else:
            task.serve_next()

    def getsockname(self) -> tuple[str, Any]:
        return ("localhost", 443) if self.socket.family == socket.AF_UNIX else super().getsockname()

    def fix_addr(self, addr: Any) -> Any:
        return ("", 0) if self.behind_tls else addr

    def set_socket_options(self, conn: socket.socket) -> None:
        if not self.behind_tls:
            super().set_socket_options(conn)

    def readable(self) -> bool:
        return self.accepting and not self._pause_left and not self._is_full()

    def _is_full(self) -> bool:
        self.in_connection_overflow = len(self._map) >= self.adj.connection_limit
        if self.in_connection_overflow:
            self._full_log.error(f"there are {self.adj.connection_limit - OWN_SOCKETS} already", logging.WARNING)
        return self.in_connection_overflow

    @property
    def _pause_left(self) -> float:
        """Seconds in which no connection is accepted, since there was no descriptor for the last one."""
        return max(0.0, self._resume_accepting_at - time.monotonic())

    def handle_accept(self) -> None:
        try:
            channel = self._accepted()
        except OSError as error:  # the client is gone again, or there is no descriptor for it
            if error.errno in OUT_OF_DESCRIPTORS:
                self._pause_accepting()
                self._descriptors_log.error(error)
            return
        if channel is not None and not self.behind_tls and self._count(channel) > self.per_address:
            self._crowded_log.error(f"one client has more than {self.per_address}", logging.WARNING)
            channel.handle_close()

    def _accepted(self) -> Channel | None:
        accepted = self.accept()
        if accepted is None:
            return None
        connection, address = accepted
        try:
            self.set_socket_options(connection)
            return self.channel_class(self, connection, self.fix_addr(address), self.adj, map=self._map)
        except BaseException:
            connection.close()
            raise

    def _pause_accepting(self) -> None:
        self._resume_accepting_at = time.monotonic() + ACCEPT_PAUSE

    def handle_error(self) -> None:
        """Called with any other error of accepting; waitress would close the listening socket."""
        log.exception("a connection can't be accepted")
        self._pause_accepting()

    def maintenance(self, now: float) -> None:
        """Close connections that have had their time. `now` is of the monotonic clock."""
        for channel in tuple(self.active_channels.values()):
            is_overdue = channel.overdue(now)
            if is_overdue and channel.phase is ChannelPhase.READING:
                self._overdue_log.error("their requests did not come in time", logging.WARNING)
            has_ended = channel.silent(now) or channel.stalled(now) or channel.will_close
            if is_overdue or has_ended:
                channel.handle_close()  # now: a socket may never get writable, when `will_close` has its effect

    def limit(self, max_connections: int) -> None:
        """Limit the connections in all, and those of one address."""
        self.adj.connection_limit = max_connections + OWN_SOCKETS
        self.per_address = per_address(max_connections)

    def drain(self) -> None:
        """Responses end their connections from now on; idle ones are closed."""
        now = time.monotonic()
        if self.draining_since is None:
            self.draining_since = now
        for channel in tuple(self.active_channels.values()):
            if channel.idle and not channel.may_send_request(now - self.draining_since):
                channel.handle_close()

    def close(self) -> None:
        """Close the listener only: another thread may still pull the trigger (see `ApiServer.close`)."""
        wasyncore.dispatcher.close(self)

    def _count(self, channel: Channel) -> int:
        """Count a new connection; how many its client has now."""
        channel.client = client_key(channel.addr[0])
        self.connections[channel.client] += 1
        return self.connections[channel.client]

    def connection_ended(self, client: str) -> None:
        """One of this client's connections, which was counted."""
        self.connections[client] -= 1
        if not self.connections[client]:
            del self.connections[client]


class ApiServer:
    """waitress in threads of its own, so that the main thread is free for the bus."""

    def __init__(
        self,
        application: Callable[..., Any],
        listener: socket.socket,
        max_connections: int,
        behind_tls: bool = False,
        on_rejected: OnRejected = lambda _rejected: {},
    ) -> None:
        """`behind_tls`: each connection begins with a header of the PROXY protocol, and was TLS to its client.

        `on_rejected` is called with each request that never reaches the application, and returns headers for its
        response.
        """
        self._map = Sockets()
        adjustments = Adjustments(
            sockets=[listener],
            backlog=BACKLOG,
            connection_limit=max_connections,
            cleanup_interval=1,
            max_request_header_size=MAX_HEAD,
            max_request_body_size=sys.maxsize,  # the parser asks the application about large ones
            inbuf_overflow=MAX_BODY,
            clear_untrusted_proxy_headers=False,  # the application judges X-Forwarded-For itself
            ident=None,
            url_scheme="https" if behind_tls else "http",
            log_socket_errors=False,
        )
        self.bodies = adjustments.bodies = Bodies()
        self._server = _Server(
            application,
            self._map,
            _sock=listener,
            adj=adjustments,
            sockinfo=(listener.family, listener.type, listener.proto, listener.getsockname()),
            bind_socket=False,
            behind_tls=behind_tls,
            on_rejected=on_rejected,
            dispatcher=_Threads(),
        )
        self._server.limit(max_connections)
        self._thread = threading.Thread(target=self._server.run, name="http", daemon=True)

    def start(self) -> None:
        """Accept connections from now on."""
        self._thread.start()

    def limit(self, max_connections: int) -> None:
        """Limit the connections to come."""
        self._server.trigger.pull_trigger(lambda: self._server.limit(max_connections))

    def drain(self) -> None:
        """Every connection ends with its next response, or soon if it sends nothing. To be called periodically."""
        self._server.trigger.pull_trigger(self._server.drain)

    def stop_accepting(self) -> None:
        """Accept no new connections and `drain` the others. The socket itself stays open."""
        self._server.trigger.pull_trigger(self._stop_in_thread)

    def idle(self) -> bool:
        """Whether no connection is left, once `stop_accepting` was called."""
        if not self._thread.is_alive():
            return True
        self.stop_accepting()  # again, for connections whose request has ended since
        return not self._server.accepting and not self._server.active_channels

    def close(self) -> None:
        """End the threads. To be called once.

        The trigger is closed last. waitress writes to its pipe after it has handed over the function to call, so the
        server's thread may have called it already; with the pipe closed by then, the write would fail, or go to
        another file that has the same descriptor by now. A thread that doesn't end keeps the pipe.
        """
        self._server.trigger.pull_trigger(self._close_in_thread)
        self._server.task_dispatcher.shutdown(timeout=1.0)
        if self._thread.is_alive():
            self._thread.join(1.0)
        if not self._thread.is_alive() and not self._server.task_dispatcher.threads:
            self._server.trigger.close()

    def _stop_in_thread(self) -> None:
        self._server.accepting = False
        self._server.drain()

    def _close_in_thread(self) -> None:
        for each in tuple(self._map.values()):
            if each is not self._server.trigger:
                each.close()
        self._map.clear()
