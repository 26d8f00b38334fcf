"""What a forwarding actor knows and the next one should, while its proxy sleeps: a file for each process, the *pack*.

What is known of the proxy's own upstreams, and their sessions. Requests that still count, wrong passwords and source
addresses of sessions are in the live state (`actors.state`), which outlives the process; what accounts have used,
counters and records are with the actors that own them; caches are not kept. There is no file where nothing is worth
keeping.

Times are of the monotonic clock, so a pack belongs to one boot of the machine. One of another boot, of another release,
or a damaged one is ignored with a line in the log.

When a proxy has no clients for long enough, its process says so; the supervisor decides whether it sleeps. The order is
what no client may fall through (`actors.supervision.proxies.sleepers`): the process accepts whatever waits, accepts no
more, leaves its pack, and replies; only then does the supervisor watch the sockets. A client that has come by then is
seen there, and the process goes on as if nothing had been.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from actors.bus.codec import ProtocolError, pack, unpack
from actors.bus.loop import Timer
from actors.forwarding.acceptor import Acceptor
from actors.forwarding.context import ForwardingContext
from actors.forwarding.upstreams.upstream_set import KeptSet
from config.files.paths import boot_id

log = logging.getLogger(__name__)

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Pack:
    """All that is kept. `form` and `boot` say for whom."""

    form: int
    boot: bytes
    upstreams: tuple[KeptSet, ...] = ()


def write(folder: Path, worker: int, context: ForwardingContext) -> None:
    """Write the pack of this process, if there is anything to keep; a former one goes. Raises `OSError`."""
    packed, path = pack_of(context), path_of(folder, worker)
    if packed == _empty():
        path.unlink(missing_ok=True)
        return
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    hidden = path.with_name(f".{path.name}")
    descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb", buffering=0) as file:
            data = pack(packed)
            if file.write(data) != len(data):
                raise OSError(f"{hidden}: could not be written whole")
        hidden.rename(path)
    except OSError:
        hidden.unlink(missing_ok=True)
        raise


def path_of(folder: Path, worker: int) -> Path:
    """The pack of the worker with this index."""
    return folder / f"asleep.{worker}"


def remove(folder: Path, worker: int) -> None:
    """The process goes on, so its pack is void."""
    try:
        path_of(folder, worker).unlink(missing_ok=True)
    except OSError as error:
        log.warning("a pack that is void can't be removed: %s", error)


def take(folder: Path, context: ForwardingContext) -> None:
    """Take over what all processes of the proxy have left, and remove it."""
    for path in sorted(folder.glob("asleep.*")):
        try:
            data = path.read_bytes()
            path.unlink()
        except OSError as error:
            log.warning("what the proxy knew before it slept can't be read: %s", error)
            continue
        found = read(data)
        if found is not None:
            restore(found, context)


def read(data: bytes) -> Pack | None:
    """The pack in these bytes; None for one that is damaged or of another boot or release."""
    try:
        found = unpack(Pack, data)
    except ProtocolError as error:
        log.warning("what the proxy knew before it slept is ignored: %s", error)
        return None
    if (found.form, found.boot) != (FORMAT, boot_id() or b""):
        log.info("what the proxy knew before it slept is ignored: it is of another boot or release")
        return None
    return found


def pack_of(context: ForwardingContext) -> Pack:
    """What this process knows."""
    return replace(_empty(), upstreams=tuple(each for each in context.upstream_sets.kept() if not _is_empty(each)))


def restore(found: Pack, context: ForwardingContext) -> None:
    """Take over what a process has known. What belongs to no object yet waits until that is made."""
    context.upstream_sets.put_former(found.upstreams)


def _empty() -> Pack:
    return Pack(FORMAT, boot_id() or b"")


def _is_empty(kept: KeptSet) -> bool:
    return not (kept.upstreams or kept.sessions.bound or kept.sessions.last)


REPORTED_AGAIN = 30.0
"""Seconds until idleness is reported once more: the supervisor may have had something under way."""
DECIDED_WITHIN = 15.0
"""Seconds after which a process that was sent to sleep goes on by itself: neither `Resume` nor `Stop` has come."""
BUSY_AGAIN = 0.5
"""Seconds after which is looked again for what holds the process awake without being a connection."""


class Sleeper:
    """`report` is called when the process has been idle long enough. `folder` and `worker` are those of the pack."""

    def __init__(
        self, context: ForwardingContext, acceptor: Acceptor, report: Callable[[], None], folder: Path, worker: int
    ) -> None:
        self._context = context
        self._loop = context.loop
        self._acceptor = acceptor
        self._report = report
        self._folder = folder
        self._worker = worker
        self._after = 0.0
        self._empty_since = self._loop.now
        self._timer: Timer | None = None
        self.asleep = False
        """True between `sleep` and `resume`."""

    def configure(self, after: float) -> None:
        """Report after so many seconds without a client; 0: never."""
        if after != self._after:
            self._after = after
            self._disarm()
            self._context.on_empty = self._emptied if after else None
            if after:
                self._arm(after)

    def sleep(self) -> bool:
        """Accept no more and leave the pack. False when there is a client, or the pack can't be written."""
        if self.asleep:
            return True
        if self._is_busy() or not self._acceptor.listening:
            return False
        self._acceptor.accept_waiting()
        if self._is_busy():
            return False
        self._acceptor.pause()
        try:
            write(self._folder, self._worker, self._context)
        except OSError as error:
            log.warning("the proxy does not sleep: what it knows can't be kept: %s", error)
            self.resume()
            return False
        self._disarm()
        self.asleep = True
        self._timer = self._loop.call_later(DECIDED_WITHIN, self.resume)
        return True

    def resume(self) -> None:
        """Go on as if `sleep` had not been."""
        self.asleep = False
        remove(self._folder, self._worker)
        self._acceptor.resume()
        self._disarm()
        if self._after:
            self._arm(self._after)

    def stop(self) -> None:
        """The process ends."""
        self._disarm()
        self._after = 0.0

    def _is_busy(self) -> bool:
        context = self._context
        return bool(context.connections or context.lingering or context.testers)

    def _emptied(self) -> None:
        self._empty_since = self._loop.now
        if self._timer is None:
            self._arm(self._after)

    def _check(self) -> None:
        self._timer = None
        left = self._empty_since + self._after - self._loop.now
        if self._context.connections:
            return  # the last one arms it again
        if self._is_busy():
            self._arm(BUSY_AGAIN)
        elif left > 0:
            self._arm(left)
        else:
            self._arm(REPORTED_AGAIN)
            self._report()

    def _arm(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._check)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __repr__(self) -> str:
        return f"<Sleeper after {self._after:.0f} s>"
