"""The state of a whole pool in a few numbers, without visiting each slot."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from actors.pools.slot import BANNED_UNTIL, LATENCY, READY_AT, STATE, STATES
from actors.pools.state_file import BANS, CHECKS, CHECKS_FAILED, StateFile, open_existing

CHECKS_APART = 0.01
"""Seconds between the first checks of two upstreams: the first one is checked at once."""


def longest_check(upstreams: int, timeout: float) -> float:
    """Seconds after which a check of all upstreams has surely ended."""
    return upstreams * CHECKS_APART + timeout + 1.0


class Summary(NamedTuple):
    """How many upstreams are in each state; each is in one of the first three.

    `usable` are those that are up and not left alone for a time: of one that is not known yet nothing is promised.
    `cooling_down` and `banned` exclude each other. `latency` is the mean of those that are known, seconds; None without
    any. The last three are counters since the file was made.
    """

    up: int
    down: int
    unknown: int
    cooling_down: int
    banned: int
    usable: int
    latency: float | None
    checks: int = 0
    checks_failed: int = 0
    bans: int = 0


def unknown(upstreams: int) -> Summary:
    """Of a pool with so many upstreams, of which nothing is known."""
    return Summary(0, 0, upstreams, 0, 0, 0, None)


def summary_of(path: Path, upstreams: int, now: float) -> Summary:
    """Of the pool with this file and so many upstreams, of which nothing is known without it. Raises `OSError`."""
    file = open_existing(path)
    return unknown(upstreams) if file is None else _of_file(file, now)


def _of_file(file: StateFile, now: float) -> Summary:
    states = [STATES[int(each)] for each in file.column(STATE)]
    banned = sum(until > now for until in file.column(BANNED_UNTIL))
    ready = [until <= now for until in file.column(READY_AT)]
    known = [each for each in file.column(LATENCY) if each]
    return Summary(
        states.count("up"),
        states.count("down"),
        states.count("unknown"),
        max(0, ready.count(False) - banned),
        banned,
        sum(state == "up" and is_ready for state, is_ready in zip(states, ready, strict=True)),
        sum(known) / len(known) if known else None,
        *(int(file.words[each]) for each in (CHECKS, CHECKS_FAILED, BANS)),
    )
