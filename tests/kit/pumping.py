"""Texts that make a regular expression slow, derived from the expression itself, and what they cost.

An expression is slow where it may read the same characters in several ways, or begins anew at each of them. So for each
of its repeats there is a text that leads to it, then something of it many times, then a character that ends the match.
"""

from __future__ import annotations

import gc
import importlib
import itertools
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_sre: Any = importlib.import_module("re._parser")
_compiler: Any = importlib.import_module("re._compiler")

SIZE: Final = 2048
"""Characters of the longest text."""
SUSPICIOUS: Final = 0.0005
"""Seconds that linear time stays far below at `SIZE`, and quadratic time far above, so that growth is measured."""
ENDLESS: Final = 0.25
"""Seconds of a processor after which a match is given up."""
LINEAR: Final = 2.8
"""Twice the text takes twice the time in linear time, and four times in quadratic time."""
MANY: Final = 64
"""A repeat of no more is bounded by itself."""
FIXED: Final = (":", '"', "\\", '\\"', '"\\', ".", "-", "0", "a", " ", "/", "a.", "a-", "0.", ", ", "; ", "=a;", "%41")
_USUAL: Final = "aAxzZfg0159_ :\"\\./-,;=%()[]{}<>*+?!#$&@^|~'`\t\r\n\x00\x7f\xe9\xa0\u0416\u2028\u200b"
_REPEATS: Final = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_VARIANTS: Final = 4
_PAIRED: Final = 9


@dataclass(frozen=True, slots=True)
class Pumped:
    """A text that can be of any length."""

    before: str
    again: str
    end: str

    def text(self, size: int) -> str:
        """So many characters of it, or a few less."""
        times = (size - len(self.before) - len(self.end)) // len(self.again)
        return self.before + self.again * max(times, 1) + self.end

    def __str__(self) -> str:
        return f"{self.before!r} + {self.again!r} * n + {self.end!r}"


@dataclass(slots=True)
class _Walk:
    """What was found in an expression: samples of what leads to each repeat, and of what it repeats."""

    flags: int
    sets: list[Callable[[str], bool]] = field(default_factory=list)
    repeats: list[tuple[str, list[str]]] = field(default_factory=list)

    def samples(self, items: Iterable[Any], before: str) -> list[str]:
        """A few texts that match these parts of a parsed expression; `before` leads to them."""
        made = [""]
        for item in items:
            ways = self._of(item, before + made[0])
            made = list(dict.fromkeys(a + b for b in ways for a in made))[:_VARIANTS]
        return made

    def _of(self, item: Any, before: str) -> list[str]:
        kind, value = str(item[0]), item[1]
        if kind in _REPEATS:
            least, most, body = value
            ways = self.samples(body, before)
            if most > MANY:
                self.repeats.append((before, [each for each in ways if each]))
            fewest = [each * max(least, 1) for each in ways]
            return fewest if least else [*fewest[:1], "", *fewest[1:]]
        if kind == "BRANCH":
            return [each for part in value[1] for each in self.samples(part, before)][: 4 * _VARIANTS]
        if kind in ("SUBPATTERN", "ATOMIC_GROUP"):
            return self.samples(value[3] if kind == "SUBPATTERN" else value, before)
        if kind in ("ASSERT", "ASSERT_NOT"):
            if value[0] > 0:
                self.samples(value[1], before)
            return [""]
        if kind in ("LITERAL", "NOT_LITERAL", "IN", "ANY"):
            return self._one(item)
        return [""]

    def _one(self, item: Any) -> list[str]:
        """Characters that match a literal or a set."""
        state = _sre.State()
        state.flags = self.flags
        compiled = _compiler.compile(_sre.SubPattern(state, [item]), self.flags)

        def has(character: str) -> bool:
            return compiled.match(character) is not None

        self.sets.append(has)
        own = [chr(item[1])] if str(item[0]) == "LITERAL" else []
        return own or list(itertools.islice(filter(has, _USUAL), 2)) or [""]


def pumps(pattern: re.Pattern[Any]) -> Iterator[Pumped]:
    """Texts for an expression."""
    flags = pattern.flags & ~re.DEBUG
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    walk = _Walk(flags | (re.ASCII if isinstance(pattern.pattern, bytes) else 0))
    walk.samples(_sre.parse(source, walk.flags), "")
    alphabet = _kinds(walk.sets)
    pairs = ["".join(each) for each in itertools.permutations(alphabet[:_PAIRED], 2)]
    befores = dict.fromkeys(["", *(before for before, _ in walk.repeats)])
    made: dict[Pumped, None] = {}
    for before, ways in walk.repeats:
        for again, end in itertools.product(ways, ("", *alphabet)):
            made[Pumped(before, again, end)] = None
    for before, again, end in itertools.product(befores, (*alphabet, *FIXED), ("", "\x00", "x")):
        made[Pumped(before, again, end)] = None
    for before, again in itertools.product(befores, pairs):
        made[Pumped(before, again, "\x00")] = None
    yield from made


def _kinds(sets: Sequence[Callable[[str], bool]]) -> list[str]:
    """One character for each kind of those that the sets of an expression tell apart."""
    kinds: dict[tuple[bool, ...], str] = {}
    for each in _USUAL + "".join(map(chr, range(256))):
        kinds.setdefault(tuple(has(each) for has in sets), each)
    return list(kinds.values())


def slow_text(pattern: re.Pattern[Any], methods: Iterable[str], most: int = SIZE) -> str | None:
    """A text of up to `most` characters for which one of these methods takes more than linear time; None: there is none
    among the pumps. Only in the main thread."""
    texts = list(pumps(pattern))
    for method, pumped in itertools.product(methods, texts):
        run = _runner(pattern, method, pumped)
        if run(most) > SUSPICIOUS and all(_grows(run, most) for _ in range(3)):
            return f"{method} of {pumped}"
    return None


def _grows(run: Callable[[int], float], most: int) -> bool:
    """Whether the time grows faster than the text. What is given up after `ENDLESS` does."""
    if run(most) == float("inf"):
        return True
    quarter, half, whole = (min(run(size) for _ in range(5)) for size in (most // 4, most // 2, most))
    return whole > SUSPICIOUS and half > LINEAR * quarter and whole > LINEAR * half


def _runner(pattern: re.Pattern[Any], method: str, pumped: Pumped) -> Callable[[int], float]:
    """Returns the seconds of a processor that a text of a size takes."""
    called: Callable[..., Any] = getattr(pattern, method)

    def run(size: int) -> float:
        text = pumped.text(size)
        given: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1", "replace")
        before = time.thread_time()
        try:
            signal.setitimer(signal.ITIMER_VIRTUAL, ENDLESS)
            try:
                called(given)
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            return time.thread_time() - before
        except _GivenUp:  # also one that came when the match was just over
            return float("inf")

    return run


class _GivenUp(Exception):
    """A match took too long. Expressions look for signals while they match."""


class Bounded:
    """For `with`: matches can be given up, and no collection of garbage is measured."""

    def __enter__(self) -> None:
        def give_up(*_: object) -> None:
            raise _GivenUp

        self._before = signal.signal(signal.SIGVTALRM, give_up)
        gc.disable()

    def __exit__(self, *_: object) -> None:
        gc.enable()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, self._before)
