"""The supervisor's side of the zygote: processes of actors are requested here, and watched.

A process is watched and signalled by its pidfd, which the zygote opened before the process could have been reaped: so a
pid that the kernel has given to another process meanwhile is never mistaken for it, and it works as well for the
children of a dead zygote.
"""

from __future__ import annotations

import errno
import logging
import os
import select
import signal
import socket
from collections import deque
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

import msgpack

from actors.bus.loop import Loop
from actors.process import ORPHAN_GRACE, Boot
from actors.supervision.fd_limit import FOR_PROCESSES, require
from actors.supervision.lifecycle import Backoff
from actors.supervision.processes.liveness import LivenessPage
from actors.supervision.processes.zygote import PACKET_MAX, Packet, copies_of, packets_of
from actors.supervision.processes.zygote_process import FirstProcesses, ZygoteProcess

if TYPE_CHECKING:  # it loads more than tests of this need
    from actors.supervision.processes.api_process import ApiProcess

log = logging.getLogger(__name__)


UNDER_WAY_MAX = 16
"""Requests that the zygote has at a time; descriptors in flight are limited."""

ZYGOTE_SILENCE = 20.0
"""Seconds after which a zygote that has requests and replies to none is killed. It imports before the first."""

NOT_NOW = frozenset({errno.EAGAIN, errno.ETOOMANYREFS, errno.ENOBUFS, errno.ENOMEM})
"""Errors of sending a request to the zygote that pass by themselves."""
SEND_AGAIN = 0.05

STATUS_WAIT = 0.1
"""Seconds that the exit status of a dead process may take to be known; without it the log line is poorer."""


class ProcessObserver(Protocol):
    """What a process is reported to."""

    def process_started(self, process: ActorProcess) -> None:
        """It has a pid now."""

    def process_ended(self, process: ActorProcess, how: str) -> None:
        """It has ended, or could not be made; `how` is a clause: `was killed by SIGKILL`."""


class OwnProcess:
    """A process that is watched and signalled by its pidfd, and that lives for as long as its lifeline is open here."""

    def __init__(self, lifeline: int, pid: int | None = None, pidfd: int | None = None) -> None:
        self.lifeline = lifeline
        self.pid = pid
        self.pidfd = pidfd
        self.ended = False

    def kill(self) -> None:
        """SIGKILL. Harmless when it has ended."""
        if self.pidfd is not None and not self.ended:
            try:
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)
            except ProcessLookupError:
                return  # it has just ended, which its pidfd reports

    def detach_lifeline(self) -> int:
        """The write end of the lifeline, which is the caller's from now on: the process lives for as long as that."""
        lifeline, self.lifeline = self.lifeline, -1
        return lifeline

    def close_lifeline(self) -> None:
        """Close it: the process ends by itself within `actors.process.ORPHAN_GRACE`."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1

    def end_after(self, loop: Loop, drain: float) -> None:
        """End it when its time to drain is over: by its lifeline, and at last by SIGKILL."""
        loop.call_later(drain + ORPHAN_GRACE, self.close_lifeline)
        loop.call_later(drain + 2 * ORPHAN_GRACE, self.kill)

    def unwatch(self, loop: Loop) -> None:
        """Its end is known: its pidfd stays readable."""
        if self.pidfd is not None:
            loop.unwatch(self.pidfd)

    def close(self) -> None:
        """Release what this process has of it. One that still lives ends by this."""
        self.ended = True
        self.close_lifeline()
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None


class ActorProcess(OwnProcess):
    """One process of one actor, from the request for it to its end."""

    def __init__(self, boot: Boot, observer: ProcessObserver, page: LivenessPage) -> None:
        """Raises `OSError` when there are no descriptors for it, and none is left open then."""
        self.far_end, lifeline = os.pipe2(os.O_CLOEXEC)  # the new process's end, and the write end
        super().__init__(lifeline)
        self.boot = boot
        self.observer = observer
        self._kill_at_start = False
        self._page = page
        try:
            self.slot = page.acquire()
        except OSError:
            self.close_far_end()
            self.close_lifeline()
            raise

    @property
    def instance(self) -> int:
        """The number of this start."""
        return self.boot.instance

    @property
    def deadline(self) -> float:
        """Its liveness deadline: until when it may be silent, by the monotonic clock."""
        return self._page.deadline(self.slot)

    @property
    def stopped(self) -> bool:
        """True if a signal or a debugger has stopped it (proc(5), the field behind the name)."""
        try:
            with open(f"/proc/{self.pid}/stat", "rb", buffering=0) as stat:
                return stat.read(1024).rpartition(b") ")[2][:1] in b"Tt"
        except OSError:
            return False  # it has just ended, which its pidfd reports

    def close_far_end(self) -> None:
        """The new process's end of the lifeline is on its way; the copy here is closed."""
        if self.far_end >= 0:
            os.close(self.far_end)
            self.far_end = -1

    def kill(self) -> None:
        """SIGKILL, now or as soon as it exists. Harmless when it has ended."""
        self._kill_at_start = True
        super().kill()

    def started(self, pid: int, pidfd: int) -> None:
        """It exists."""
        self.pid, self.pidfd = pid, pidfd
        if self._kill_at_start:
            self.kill()

    def close(self) -> None:
        """Release what the supervisor has of it. A process that still lives ends by this."""
        if not self.ended:
            self._page.release(self.slot)
        self.close_far_end()
        super().close()

    def __repr__(self) -> str:
        return f"<ActorProcess {self.boot.name}/{self.instance} pid {self.pid}{' ended' if self.ended else ''}>"


class Spawner:
    """Makes actor processes by way of a zygote, which it starts anew whenever that dies."""

    def __init__(
        self,
        loop: Loop,
        log_level: str,
        log_format: str,
        inherited: tuple[int, ...] = (),
        first: FirstProcesses | None = None,
    ) -> None:
        """`inherited` are descriptors that zygote and actors inherit: the locks of the product.

        `first` are the zygote and the API's process, if they were started before.
        """
        self._loop = loop
        self._logging = (log_level, log_format)
        self._inherited = inherited
        self._tokens = 0
        self._waiting: deque[tuple[ActorProcess, str, list[int]]] = deque()
        self._unsent: deque[Packet] = deque()
        """The rest of the request that is being sent."""
        self._under_way: dict[int, ActorProcess] = {}
        self._living: dict[int, ActorProcess] = {}
        self._dead: dict[int, ActorProcess] = {}
        self._statuses: dict[int, int] = {}
        self._backoff = Backoff()
        self._zygote: ZygoteProcess | None = None
        self._control: socket.socket | None = None
        self._closed = False
        self._replied_at = loop.now
        self._page = LivenessPage() if first is None else first.zygote.page
        self._api = None if first is None else first.api
        self._use(ZygoteProcess(self._page) if first is None else first.zygote)

    @property
    def zygote_pid(self) -> int | None:
        """The zygote's process id; None while there is none."""
        return self._zygote.pid if self._zygote else None

    def spawn(self, entry: str, boot: Boot, sockets: list[socket.socket], observer: ProcessObserver) -> ActorProcess:
        """Request a process of the actor class `entry`; `observer` is called later, never in this very call.

        The sockets' descriptors are copied at once: the caller may close its own. Raises `OSError` when there are no
        descriptors left.
        """
        require(FOR_PROCESSES + len(sockets))
        process = ActorProcess(boot, observer, self._page)
        try:
            copies = copies_of(sockets)
        except OSError:
            process.close()
            raise
        if self._api is not None and self._api.entry == entry:
            api, self._api = self._api, None
            self._loop.call_soon(lambda: self._request_of_api(api, process, copies))
        else:
            self._waiting.append((process, entry, copies))
            self._loop.call_soon(self._send_waiting)
        return process

    def check(self, delayed: bool = False) -> None:
        """Kill a zygote that hangs; another one is started.

        If the supervisor itself was `delayed`, the zygote's silence until now doesn't count.
        """
        if delayed or not self._under_way:
            self._replied_at = self._loop.now
        elif self._zygote is not None and self._loop.now - self._replied_at > ZYGOTE_SILENCE:
            log.error("the zygote has not replied for %.0f s; killing it", self._loop.now - self._replied_at)
            self._replied_at = self._loop.now
            self._zygote.kill()

    def set_logging(self, level: str, style: str) -> None:
        """For the log of the next zygote; actors get theirs in their boot."""
        self._logging = (level, style)

    def reaped(self, pid: int, status: int) -> None:
        """A process ended with `status`: reported by its zygote, or by the supervisor when that is dead."""
        if pid in self._living:
            self._statuses[pid] = status
            if pid in self._dead:
                self._finish(self._dead[pid])

    def close(self) -> None:
        """End the zygote. Actors are not touched."""
        self._closed = True
        self._drop_zygote()
        self._page.close()

    # --- requests ---

    def _request_of_api(self, api: ApiProcess, process: ActorProcess, sockets: list[int]) -> None:
        """The process that waits to be the first API gets its boot."""
        descriptors, process.far_end = [process.far_end, *sockets], -1
        try:
            pid, pidfd = api.request({"boot": asdict(process.boot), "slot": process.slot}, descriptors)
        except OSError as error:
            process.close()
            process.observer.process_ended(process, f"was not made: {error.strerror}")
        else:
            self._made(process, pid, pidfd)
        finally:
            for each in descriptors:
                os.close(each)

    def _send_waiting(self) -> None:
        while self._control is not None and (self._unsent or self._may_request()):
            packets = self._unsent or packets_of(*self._next_request())
            if not self._send(self._control, packets[0]):
                self._loop.call_later(SEND_AGAIN, self._send_waiting)
                return
            if not self._unsent:
                self._unsent.extend(packets)
                self._request_begun()
            self._unsent.popleft().close()

    def _may_request(self) -> bool:
        return bool(self._waiting) and len(self._under_way) < UNDER_WAY_MAX

    def _next_request(self) -> tuple[dict[str, Any], list[int]]:
        process, entry, sockets = self._waiting[0]
        request = {"token": self._tokens + 1, "entry": entry, "boot": asdict(process.boot), "slot": process.slot}
        return request, [process.far_end, *sockets]

    def _request_begun(self) -> None:
        """The first packet of the next request is sent."""
        process = self._waiting.popleft()[0]
        self._tokens += 1
        self._under_way[self._tokens] = process
        process.far_end = -1  # it is closed with its packet

    def _send(self, control: socket.socket, packet: Packet) -> bool:
        """False when it has to be tried again: the socket is full, or too many descriptors are in flight."""
        try:
            socket.send_fds(control, [packet.data], packet.descriptors)
        except OSError as error:
            if error.errno in NOT_NOW:
                return False
            # Its end of the socket fails in the next turn, too, and there all requests under way are failed.
            log.warning("cannot send a request to the zygote: %s", error)
        return True

    def _on_packet(self, _mask: int) -> None:
        control = self._control
        while control is not None and control is self._control:
            try:
                packet, descriptors, _flags, _address = socket.recv_fds(control, PACKET_MAX, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                packet, descriptors = b"", []
            if not packet:
                self._zygote_ended()
                return
            self._handle_packet(msgpack.unpackb(packet), descriptors)

    def _handle_packet(self, report: dict[str, Any], descriptors: list[int]) -> None:
        if "ended" in report:
            self.reaped(report["ended"], report["status"])
            return
        process = self._under_way.pop(report["token"])
        self._replied_at = self._loop.now
        if "failed" in report or not descriptors:
            process.close()  # without a pidfd it can't be watched, so it can't be kept
            self._send_waiting()
            failed = "failed" in report
            why = f"was not made: {report['failed']}" if failed else "could not be watched: out of descriptors"
            process.observer.process_ended(process, why)
            return
        self._send_waiting()
        self._made(process, report["started"], descriptors[0])

    def _made(self, process: ActorProcess, pid: int, pidfd: int) -> None:
        process.started(pid, pidfd)
        self._living[pid] = process
        self._loop.watch(pidfd, select.EPOLLIN, lambda _mask: self._on_ended(process))
        process.observer.process_started(process)

    def _on_ended(self, process: ActorProcess) -> None:
        """Its pidfd is readable. Its exit status follows in a moment, from the process that reaps it."""
        process.unwatch(self._loop)
        if process.pid in self._statuses:
            self._finish(process)
        else:
            self._dead[process.pid or 0] = process
            self._loop.call_later(STATUS_WAIT, lambda: self._finish(process))

    def _finish(self, process: ActorProcess) -> None:
        pid = process.pid or 0
        if self._living.pop(pid, None) is not None:
            self._dead.pop(pid, None)
            process.close()
            process.observer.process_ended(process, describe_status(self._statuses.pop(pid, None)))

    # --- the zygote itself ---

    def _use(self, zygote: ZygoteProcess) -> None:
        """Raises `OSError`, and then it has ended."""
        try:
            zygote.configure(*self._logging, self._inherited)
        except OSError:
            zygote.end()
            raise
        zygote.control.setblocking(False)
        self._zygote, self._control = zygote, zygote.control
        self._replied_at = self._loop.now
        self._backoff.started(self._loop.now)
        self._loop.watch(zygote.control.fileno(), select.EPOLLIN, self._on_packet)
        self._send_waiting()

    def _zygote_ended(self) -> None:
        log.error("the zygote ended; its children live on, starting another one")
        self._drop_zygote()
        if not self._closed:
            self._loop.call_later(self._backoff.failed(self._loop.now), self._start_again)
        lost = list(self._under_way.values())
        self._under_way.clear()
        for process in lost:
            process.close()
            process.observer.process_ended(process, "was not made: the zygote ended")

    def _start_again(self) -> None:
        if self._closed or self._control is not None:
            return
        try:
            self._use(ZygoteProcess(self._page))
        except OSError as error:  # out of descriptors or memory; all processes that live serve on
            log.error("cannot start another zygote: %s", error)
            self._loop.call_later(self._backoff.failed(self._loop.now), self._start_again)

    def _drop_zygote(self) -> None:
        if self._control is not None:
            self._loop.unwatch(self._control.fileno())
            self._control = None
        while self._unsent:
            self._unsent.popleft().close()
        if self._zygote is not None:
            self._zygote.end()
            self._zygote = None


def describe_status(status: int | None) -> str:
    """An exit code (or minus a signal's number) as a clause."""
    if status is None:
        return "ended"
    if status < 0:
        try:
            return f"was killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"was killed by signal {-status}"
    return f"ended with status {status}"
