"""Checking passwords beside the requests: bcrypt takes tens of milliseconds of a core.

One password is checked where it is asked for. As soon as a second one comes meanwhile, another process does it
(`api.security.password_worker`), at a lower priority than everything else and for as many at once as there are cores;
so reads go on while people sign in. Who has to wait holds a thread of the server (`api.server.http_server`), so only
`AT_ONCE` may, and of these only `EACH` of one client, so that guessing passwords keeps no other client from signing in.
Further requests are refused (`TooBusy`), whatever their password is.

`concurrent.futures.ProcessPoolExecutor` was measured instead, on 2 cores: with `spawn` its workers and the resource
tracker take 26 MiB (PSS), with `forkserver` 29 MiB, and one more worker for each further core; this process takes
6.5 MiB for any number of cores, since bcrypt releases the interpreter's lock. And an executor has no way to replace a
worker that hangs: `result` times out, and each later call waits behind it.
"""

from __future__ import annotations

import logging
import queue
import socket
import subprocess
import sys
import threading

from api.concurrency_limit import ConcurrencyLimit
from api.cpu_affinity import allowed
from api.security.password_worker import SEPARATOR
from config.passwords import attempts, check_hash

log = logging.getLogger(__name__)

AT_ONCE, EACH = 40, 32
"""Requests that wait for a result, or for a lane: in all, and of one client."""
TIMEOUT = 10.0
"""Seconds for one password, and for a free lane; a process that takes longer hangs, and is replaced."""
_PROGRAM = (sys.executable, "-P", "-m", "api.security.password_worker")


class WorkerLost(Exception):
    """The process does not reply; the text has the reason."""


class PasswordChecker:
    """Checks passwords. Thread-safe."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH) -> None:
        self._places = ConcurrencyLimit(at_once, each, "checks of passwords", "client")
        self._starting = threading.Lock()
        self._worker: _Worker | None = None
        self._closed = False

    def check_password(self, password: str, stored: str, client: str) -> bool:
        """Whether `stored` was made from `password`.

        Raises `TooBusy` when too many wait already, in all or of this client
        (`actors.net.client_key.client_key`).
        """
        with self._places.acquire(client):
            alone = self._places.acquired == 1
            check = check_hash if alone and self._worker is None else self._check
            return any(check(given, hashed) for given, hashed in attempts(password, stored))

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        worker = self._worker
        return None if worker is None else worker.process.pid

    def close(self) -> None:
        """End the process."""
        with self._starting:
            self._closed = True
            if self._worker is not None:
                self._worker.end()

    def _check(self, given: bytes, hashed: bytes) -> bool:
        for _ in range(2):  # it may have been killed since the last time
            worker = self._running()
            if worker is None:
                break
            try:
                return worker.check(given + SEPARATOR + hashed)
            except WorkerLost as error:
                self._discard(worker, error)
        return check_hash(given, hashed)  # which slows down other requests

    def _running(self) -> _Worker | None:
        with self._starting:
            if self._worker is None and not self._closed:
                try:
                    self._worker = _Worker()
                except OSError as error:
                    log.error("cannot start the password worker: %s", error)
            return self._worker

    def _discard(self, lost: _Worker, reason: WorkerLost) -> None:
        with self._starting:
            if self._worker is lost:
                log.warning("replacing the password worker: %s", reason)
                lost.end()
                self._worker = None


class _Worker:
    """The process and our ends of its lanes."""

    def __init__(self) -> None:
        pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in allowed]
        theirs = [their.fileno() for _, their in pairs]
        command = [*_PROGRAM, ",".join(map(str, sorted(allowed))), *map(str, theirs)]
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=theirs)
        except OSError:
            for ours, _ in pairs:
                ours.close()
            raise
        finally:
            for _, their in pairs:
                their.close()
        self._lanes = [ours for ours, _ in pairs]
        self._free: queue.SimpleQueue[socket.socket | None] = queue.SimpleQueue()
        for lane in self._lanes:
            lane.settimeout(TIMEOUT)
            self._free.put(lane)

    def check(self, request: bytes) -> bool:
        """The reply to a request, in the order of requests. Raises `WorkerLost`."""
        lane = self._next_lane()
        try:
            lane.send(request)
            reply = lane.recv(1)
        except TimeoutError as error:
            raise WorkerLost(f"no reply within {TIMEOUT:.0f} s") from error
        except OSError as error:
            raise WorkerLost(f"it has ended: {error}") from error
        if not reply:
            raise WorkerLost("it has ended")
        self._free.put(lane)  # no lane that failed: a late reply would count for the next request
        return reply == b"1"

    def _next_lane(self) -> socket.socket:
        try:
            lane = self._free.get(timeout=TIMEOUT)
        except queue.Empty as error:
            raise WorkerLost(f"no free lane within {TIMEOUT:.0f} s") from error
        if lane is None:
            self._free.put(None)  # for the next waiting thread
            raise WorkerLost("it was ended")
        return lane

    def end(self) -> None:
        """Close the lanes, which wakes the threads that wait on them, and kill the process."""
        for lane in self._lanes:
            try:
                lane.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended already
                continue
        self._free.put(None)
        self.process.kill()
        self.process.wait()
