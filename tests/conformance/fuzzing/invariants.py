"""What holds of every session, whatever came in."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from enum import Enum
from types import FrameType
from typing import Any

from actors.compiled import runs_compiled
from actors.forwarding.protocols.session import Session, SessionConfig
from tests.kit.compiled import attributes

SIZE_MAX = 256 * 1024
"""Octets that one connection may take, its session's objects included."""

CALLS_PER_OCTET = 8
"""The shortest request has some thirty octets and takes about a hundred calls, the fuzzer's own among them."""
CALLS_AT_ONCE = 2_000

_SHARED = (SessionConfig, Enum, type)
_WITHOUT_PARTS = {bytes, bytearray, str, int, float, bool, type(None)}


def deep_size(thing: object, seen: set[int] | None = None) -> int:
    """Octets of `thing` and of all that only it holds on to."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, _SHARED) or callable(thing):
        return 0
    seen.add(id(thing))
    parts = () if type(thing) in _WITHOUT_PARTS else _parts(thing)
    return sys.getsizeof(thing) + sum(deep_size(part, seen) for part in parts)


def _parts(thing: object) -> list[Any]:
    if isinstance(thing, dict):
        return [*thing.keys(), *thing.values()]
    if isinstance(thing, list | tuple | set | frozenset):
        return list(thing)
    names = [*attributes(thing), *getattr(thing, "__dict__", {}).keys()]
    return [getattr(thing, name) for name in names if hasattr(thing, name)]


def check_work(run: Callable[[], object], size: int) -> None:
    """What `run` does with so many octets is a bounded number of calls for each of them."""
    if runs_compiled():
        run()
        return  # there is no call of a Python function to count
    calls = 0

    def count(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    assert calls <= CALLS_PER_OCTET * size + CALLS_AT_ONCE, f"{calls} calls for {size} octets"


def check(session: Session, over: bool, now: float, longest_wait: float) -> None:
    """After every step: `over` says that the session's last command has come out."""
    if over:
        return
    assert not session.closed, f"{session!r} is closed without `CloseClient`"
    assert math.isfinite(session.deadline), f"{session!r} waits for ever"
    assert session.deadline <= now + longest_wait, f"{session!r} waits too long"


def check_size(session: Session) -> None:
    """At the end of a conversation."""
    taken = deep_size(session)
    assert taken <= SIZE_MAX, f"{taken} octets in {session!r}"
