"""Checking passwords beside the requests: bcrypt takes tens of milliseconds of a core.

One password is checked where it is asked for. As soon as a second one comes meanwhile, another process does it
(`api.security.password_worker`), at a lower priority than everything else and for as many at once as there are cores;
so reads go on while people sign in. Who has to wait holds a thread of the server (`api.server.http_server`), so only
`AT_ONCE` may, and of these only `EACH` of one client: whoever tries passwords keeps nobody else from signing in. The
others are told to come again in a moment, whoever they are and whatever their password is.
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
from config.passwords import check_prehashed, prehashed

log = logging.getLogger(__name__)

AT_ONCE, EACH = 40, 32
"""Requests that wait for an answer, or to ask: in all, and of one client."""
PATIENCE = 10.0
"""Seconds that the process may take for one password, or until it is asked; then it hangs, and is replaced."""
_PROGRAM = (sys.executable, "-P", "-m", "api.security.password_worker")


class WorkerLost(Exception):
    """The process does not answer; the text says how."""


class PasswordChecker:
    """Checks passwords. Thread-safe."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH) -> None:
        self._places = ConcurrencyLimit(at_once, each, "checks of passwords", "client")
        self._starting = threading.Lock()
        self._hasher: _Worker | None = None
        self._closed = False

    def check_password(self, password: str, stored: str, client: str) -> bool:
        """Whether `stored` was made from `password`.

        Raises `TooBusy` when too many wait already, in all or of this client
        (`actors.net.client_key.client_key`).
        """
        with self._places.acquire(client):
            alone = self._places.acquired == 1
            prehash, hashed = prehashed(password), stored.encode("ascii")
            if alone and self._hasher is None:
                return check_prehashed(prehash, hashed)
            return self._check(prehash, hashed)

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one."""
        hasher = self._hasher
        return None if hasher is None else hasher.process.pid

    def close(self) -> None:
        """End the process."""
        with self._starting:
            self._closed = True
            if self._hasher is not None:
                self._hasher.end()

    def _check(self, prehash: bytes, stored: bytes) -> bool:
        for _ in range(2):  # it may have been killed since the last time
            hasher = self._running()
            if hasher is None:
                break
            try:
                return hasher.ask(prehash + stored)
            except WorkerLost as error:
                self._forget(hasher, error)
        return check_prehashed(prehash, stored)  # slower for everybody else, and right

    def _running(self) -> _Worker | None:
        with self._starting:
            if self._hasher is None and not self._closed:
                try:
                    self._hasher = _Worker()
                except OSError as error:
                    log.error("cannot start the password worker: %s", error)
            return self._hasher

    def _forget(self, lost: _Worker, why: WorkerLost) -> None:
        with self._starting:
            if self._hasher is lost:
                log.warning("replacing the password worker: %s", why)
                lost.end()
                self._hasher = None


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
            lane.settimeout(PATIENCE)
            self._free.put(lane)

    def ask(self, question: bytes) -> bool:
        """The answer, after those who came before. Raises `WorkerLost`."""
        lane = self._next_lane()
        try:
            lane.send(question)
            answer = lane.recv(1)
        except TimeoutError as error:
            raise WorkerLost(f"it has not answered within {PATIENCE:.0f} s") from error
        except OSError as error:
            raise WorkerLost(f"it has ended: {error}") from error
        if not answer:
            raise WorkerLost("it has ended")
        self._free.put(lane)  # none that failed: what is answered late would be taken for the next answer
        return answer == b"1"

    def _next_lane(self) -> socket.socket:
        try:
            lane = self._free.get(timeout=PATIENCE)
        except queue.Empty as error:
            raise WorkerLost(f"it has not answered anybody within {PATIENCE:.0f} s") from error
        if lane is None:
            self._free.put(None)  # for the next one who waits
            raise WorkerLost("it was ended")
        return lane

    def end(self) -> None:
        """Close the lanes, by which it ends; whoever waits on one hears that."""
        for lane in self._lanes:
            try:
                lane.shutdown(socket.SHUT_RDWR)
            except OSError:  # it has ended already
                continue
        self._free.put(None)
        self.process.kill()
        self.process.wait()
