"""Bulk bytes from one socket to another without passing through this process: `splice(2)` through a pipe.

A pipe is taken from the pool only while bytes are under way, so whatever is idle owns none. The sockets are watched
edge-triggered: a flow reads until the kernel says that there is nothing, or stops with bytes in its pipe because the
other side takes no more; the event that ends the wait is the caller's to notice.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from abc import ABC, abstractmethod
from enum import Enum
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from actors.forwarding.limits.token_bucket import Throttle
from actors.net.transport import Transport

PIPE_SIZE: Final = 1024 * 1024
FREE_PIPES_MAX: Final = 64
REPEATS: Final = 16
"""Pipes full that one flow may move before the others get their turn."""

COPY_SIZE: Final = 128 * 1024
COPY_REPEATS: Final = 32

_F_SETPIPE_SZ = 1031  # fcntl(2); the fcntl module names it from Python 3.10 on where the C library does
_FLAGS: Final = os.SPLICE_F_MOVE | os.SPLICE_F_NONBLOCK

_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE)

Pipe = tuple[int, int]


class PipesExhausted(Exception):
    """There is no descriptor for a pipe now. Nothing is lost: try again a little later."""


class PipePool:
    """Empty pipes, as large as the kernel allows up to `PIPE_SIZE`."""

    def __init__(self) -> None:
        self._free: list[Pipe] = []

    def acquire(self) -> Pipe:
        """An empty pipe. Raises `PipesExhausted` when there is no descriptor for one."""
        if self._free:
            return self._free.pop()
        try:
            pipe = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno not in _OUT_OF_DESCRIPTORS:
                raise
            raise PipesExhausted from error
        with contextlib.suppress(PermissionError):  # over the user's limit of pipe pages: the default size works too
            fcntl.fcntl(pipe[1], _F_SETPIPE_SZ, PIPE_SIZE)
        return pipe

    def release(self, pipe: Pipe) -> None:
        """Keep an empty pipe for others, or close it."""
        if len(self._free) < FREE_PIPES_MAX:
            self._free.append(pipe)
        else:
            discard(pipe)


def discard(pipe: Pipe) -> None:
    """Close a pipe with whatever is in it."""
    os.close(pipe[0])
    os.close(pipe[1])


class Progress(Enum):
    """How far a flow has come when it stops."""

    EMPTY = "the source has nothing now"  # or has broken, when `pump` raises
    FULL = "the destination takes no more now"  # or has broken, when `pump` raises
    THROTTLED = "a limit lets nothing pass now"  # its throttle calls when it does
    YIELDED = "there is more, but others have waited"
    COMPLETE = "all that was to be moved has been"
    ENDED = "the source has ended, and all of it is delivered"
    PAUSED = "the source is read by something else"


EMPTY: Final[Progress] = Progress.EMPTY
FULL: Final[Progress] = Progress.FULL
THROTTLED: Final[Progress] = Progress.THROTTLED
YIELDED: Final[Progress] = Progress.YIELDED
COMPLETE: Final[Progress] = Progress.COMPLETE
ENDED: Final[Progress] = Progress.ENDED
PAUSED: Final[Progress] = Progress.PAUSED


H = TypeVar("H", int, bytes | memoryview)
"""What a flow has between its two sides: bytes, or their number in a pipe."""


class BufferedFlow(ABC, Generic[H]):
    """One direction between two sockets. `remaining` is what is still to be moved, or -1 for all until the end.

    `throttle` limits and counts what is taken from the source.
    """

    __slots__ = ("_buffered", "moved", "progress", "remaining", "throttle")

    _size: ClassVar[int]
    """Bytes that are taken from the source at once."""
    _repeats: ClassVar[int]
    """How often, before the others get their turn."""
    _buffered: H

    def __init__(self, length: int | None, throttle: Throttle | None) -> None:
        self.throttle = throttle
        self.remaining = -1 if length is None else length
        self.moved = 0
        self.progress = EMPTY

    def pump(self) -> Progress:
        """Move what can be moved.

        Raises `OSError` when a side is broken, and then `progress` says which: `EMPTY` the source, `FULL` the
        destination; and `PipesExhausted`, after which it may be called again.
        """
        for _ in range(self._repeats):
            if not self._buffered:
                self.progress = EMPTY
                progress = self._fill()
                if progress is not None:
                    return self._stop(progress)
            self.progress = FULL
            if not self._drain():
                return FULL
        self.progress = YIELDED
        return YIELDED

    def _fill(self) -> Progress | None:
        """Take bytes from the source; a reason to stop, or None."""
        wanted = self._size if self.remaining < 0 else min(self._size, self.remaining)
        if wanted == 0:
            return COMPLETE
        throttle = self.throttle
        if throttle is not None:
            wanted = min(wanted, throttle.available())
            if wanted == 0:
                return THROTTLED
        try:
            count = self._read(wanted)
        except BlockingIOError:
            return EMPTY
        if count == 0:
            return ENDED
        if self.remaining > 0:
            self.remaining -= count
        if throttle is not None:
            throttle.consume(count)
        return None

    @abstractmethod
    def _read(self, wanted: int) -> int:
        """Buffer up to `wanted` bytes of the source, and return how many; 0 at its end. Raises as `recv`."""

    @abstractmethod
    def _drain(self) -> bool:
        """Pass on what is buffered; False when the destination does not take all of it now."""

    def _stop(self, progress: Progress) -> Progress:
        """Stop with nothing buffered."""
        self.progress = progress
        return progress

    @abstractmethod
    def abort(self) -> None:
        """Discard what is buffered."""


AnyFlow: TypeAlias = BufferedFlow[Any]


class Flow(BufferedFlow[int]):
    """Through the kernel: from the source into a pipe, and from the pipe to the destination."""

    __slots__ = ("_destination", "_pipe", "_pipes", "_source")

    _size = PIPE_SIZE
    _repeats = REPEATS

    def __init__(
        self,
        pipes: PipePool,
        source: int,
        destination: int,
        length: int | None = None,
        throttle: Throttle | None = None,
    ) -> None:
        super().__init__(length, throttle)
        self._pipes = pipes
        self._source = source
        self._destination = destination
        self._pipe: Pipe | None = None
        self._buffered = 0

    def _read(self, wanted: int) -> int:
        if self._pipe is None:
            self._pipe = self._pipes.acquire()
        self._buffered = os.splice(self._source, self._pipe[1], wanted, flags=_FLAGS)
        return self._buffered

    def _drain(self) -> bool:
        assert self._pipe is not None
        try:
            count = os.splice(self._pipe[0], self._destination, self._buffered, flags=_FLAGS)
        except BlockingIOError:
            return False
        self._buffered -= count
        self.moved += count
        return self._buffered == 0

    def _stop(self, progress: Progress) -> Progress:
        """Stop, and leave the empty pipe to others."""
        if self._pipe is not None:
            self._pipes.release(self._pipe)
            self._pipe = None
        return super()._stop(progress)

    def abort(self) -> None:
        if self._pipe is not None:
            discard(self._pipe)
            self._pipe = None
            self._buffered = 0

    def __repr__(self) -> str:
        return f"<Flow {self._source} to {self._destination}, {self.moved} moved, {self.progress.name}>"


class CopyFlow(BufferedFlow[bytes | memoryview]):
    """Through this process, for a side that the kernel can't splice: TLS. Buffers at most one read."""

    __slots__ = ("_destination", "_source")

    _size = COPY_SIZE
    _repeats = COPY_REPEATS

    def __init__(
        self, source: Transport, destination: Transport, length: int | None = None, throttle: Throttle | None = None
    ) -> None:
        super().__init__(length, throttle)
        self._source = source
        self._destination = destination
        self._buffered = b""

    def _read(self, wanted: int) -> int:
        self._buffered = self._source.recv(wanted)
        return len(self._buffered)

    def _drain(self) -> bool:
        while self._buffered:
            try:
                sent = self._destination.send(self._buffered)
            except BlockingIOError:
                return False
            self.moved += sent
            self._buffered = memoryview(self._buffered)[sent:]
        return True

    def abort(self) -> None:
        self._buffered = b""

    def __repr__(self) -> str:
        return f"<CopyFlow, {self.moved} moved, {len(self._buffered)} buffered, {self.progress.name}>"
