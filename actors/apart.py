"""Work that takes much memory for a moment is done by a process of its own, which gives all of it back.

Python keeps most of what it has freed: something small that stays lies between it. What reads ten thousand stored
proxies to make a short message of each would have five times the memory of the messages for good.
"""

from __future__ import annotations

import os
import pickle
import traceback
from collections.abc import Callable
from typing import NoReturn, TypeVar

from actors.death_signal import end_with

T = TypeVar("T")


def apart(work: Callable[[], T]) -> T:
    """The result of `work`, which a fork of this process runs, or the exception that it raises.

    Either has to be one that `pickle` takes. This process must have no other threads. Raises `ChildProcessError` when
    the fork ends without a result, and `OSError` when there can be none.
    """
    reading, writing = os.pipe()
    parent = os.getpid()
    try:
        pid = os.fork()
    except OSError:
        os.close(reading)
        os.close(writing)
        raise
    if pid == 0:
        os.close(reading)
        _run(work, writing, parent)
    os.close(writing)
    with open(reading, "rb") as pipe:
        packed = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if status != 0:
        raise ChildProcessError(f"a process that was to work for this one ended with {status}")
    result, error = pickle.loads(packed)  # noqa: S301 - this very program has written it
    if error is not None:
        raise error
    found: T = result
    return found


def _run(work: Callable[[], T], writing: int, parent: int) -> NoReturn:
    """In the fork: nothing of the parent's is left to run in it."""
    status = 1
    try:
        end_with(parent)  # this process has its locks
        packed = pickle.dumps(_outcome(work), pickle.HIGHEST_PROTOCOL)
        with open(writing, "wb") as pipe:
            pipe.write(packed)
        status = 0
    except BaseException:  # noqa: BLE001 - nothing may escape into the parent's own code; the status says it
        traceback.print_exc()
    finally:
        os._exit(status)


def _outcome(work: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return work(), None
    except Exception as error:  # noqa: BLE001 - the caller's, who gets it
        return None, error
