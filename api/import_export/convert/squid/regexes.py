"""Regular expressions of access lists as texts that they match: only where it is certain what these are."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

from api.import_export.convert.host_sets import Names
from config.net.host_names import is_host_name

EXPANDED_MAX = 500
DEPTH_MAX = 50
"""Groups in one another."""
START, END, ANY = "\x01", "\x02", "\x03"
"""In an expanded text: where `^`, `$` and `.*` were."""

_SPECIAL = "^$.*+?{}[]()|\\"


class NotFinite(ValueError):
    """The expression matches more than a list of texts; the text says because of what."""


class _Parser:
    """Expands one expression: letters, escaped signs, `^`, `$`, `.*`, groups with `|`, and `?` behind one of these."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0

    def whole(self) -> list[str]:
        found = self._choices()
        if self._at < len(self._text):
            raise NotFinite("a ) without its (")
        return found

    def _choices(self) -> list[str]:
        found = self._sequence()
        while self._peek() == "|":
            self._at += 1
            found += self._sequence()
        return _bounded(found)

    def _sequence(self) -> list[str]:
        found = [""]
        while self._peek() not in ("", "|", ")"):
            found = _bounded("".join(pair) for pair in product(found, self._repeated(self._atom())))
        return found

    def _repeated(self, atom: list[str]) -> list[str]:
        if self._peek() == "?":
            self._at += 1
            return ["", *atom]
        if self._peek() in ("*", "+", "{"):
            raise NotFinite(f"the repetition {self._peek()}")
        return atom

    def _atom(self) -> list[str]:
        sign = self._peek()
        self._at += 1
        if sign == "\\":
            return [self._escaped()]
        if sign == ".":
            return [self._anything()]
        if sign == "(":
            return self._group()
        if sign in ("^", "$"):
            return [START if sign == "^" else END]
        if sign in _SPECIAL:
            raise NotFinite(f"the sign {sign}")
        return [sign]

    def _escaped(self) -> str:
        sign = self._peek()
        self._at += 1
        if not sign or sign.isalnum():
            raise NotFinite(f"\\{sign}")
        return sign

    def _anything(self) -> str:
        if self._peek() == "*":
            self._at += 1
            return ANY
        raise NotFinite("a dot, which stands for any sign; a dot itself is written \\.")

    def _group(self) -> list[str]:
        if self._text.startswith("?:", self._at):
            self._at += 2
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise NotFinite(f"more than {DEPTH_MAX} groups in one another")
        found = self._choices()
        self._depth -= 1
        if self._peek() != ")":
            raise NotFinite("a ( without its )")
        self._at += 1
        return found

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]


def _bounded(texts: Iterable[str]) -> list[str]:
    found = list(dict.fromkeys(texts))
    if len(found) > EXPANDED_MAX:
        raise NotFinite(f"it stands for more than {EXPANDED_MAX} texts")
    return found


def texts_of(expression: str) -> list[str]:
    """The texts of which one is in all that the expression matches, with `START`, `END` and `ANY`.

    `.*` at an end that isn't anchored is left out. Raises `NotFinite`.
    """
    return [each.removeprefix(ANY).removesuffix(ANY) for each in _Parser(expression).whole()]


def names_of(expression: str) -> Names:
    """The host names that an expression for host names matches. Raises `NotFinite`."""
    return Names.union([_names(text) for text in texts_of(expression.lower())])


def _names(text: str) -> Names:
    if not text.endswith(END):
        raise NotFinite("it isn't anchored by $, so it matches in the middle of names")
    body = text.removesuffix(END)
    if body.startswith(START + ANY + "."):
        body = body.removeprefix(START + ANY)
    name = body.removeprefix(START).removeprefix(".")
    if any(sign in name for sign in (START, END, ANY)) or not is_host_name(name):
        raise NotFinite("it doesn't match whole names")
    if body.startswith(START):
        return Names(frozenset({name}), frozenset())
    if body.startswith("."):
        return Names(frozenset(), frozenset({name}))
    raise NotFinite("neither ^ nor \\. is before the name, so it matches the ends of other names")
