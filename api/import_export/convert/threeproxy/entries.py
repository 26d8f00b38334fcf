"""The lists of `allow`, `deny` and alike: users, sources, targets, ports, operations, days, times; as conditions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from api.import_export.convert.decisions import ALWAYS, NEVER, Condition, Part, of_methods, of_users
from api.import_export.convert.host_sets import NO_NAMES, Addresses, Names
from api.import_export.convert.intervals import Intervals
from api.import_export.convert.regions import EVERYTHING, PLAIN, PLAIN_HTTP, TUNNEL, Region
from api.import_export.convert.squid import values
from config.net.host_names import is_host_name

DAY = values.DAY
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_HTTP = {
    "HTTP": PLAIN,
    "HTTP_GET": frozenset({"GET"}),
    "HTTP_PUT": frozenset({"PUT"}),
    "HTTP_POST": frozenset({"POST"}),
    "HTTP_HEAD": frozenset({"HEAD"}),
    "HTTP_OTHER": frozenset({"DELETE", "OPTIONS", "PATCH", "TRACE"}),
    "HTTP_CONNECT": TUNNEL,
    "HTTPS": TUNNEL,
}
_OF_SOCKS = frozenset({"CONNECT", "BIND", "UDPASSOC"})
NUMBER = 7
"""Lists of an entry."""


def parts(lists: Sequence[str], service: str, names_users: bool) -> tuple[Part, ...]:
    """The conditions of an entry for a service. Without `names_users` an entry with users never matches."""
    makers: list[Callable[[list[str]], Condition]] = [
        _users if names_users else lambda _words: NEVER,
        _sources,
        _targets,
        _ports,
        lambda words: _operations(words, service),
        _days,
        _times,
    ]
    return tuple(
        Part(each) for maker, text in zip(makers, lists, strict=False) if (each := _made(maker, text)) != ALWAYS
    )


def any_of(lists: Sequence[str], kept: Sequence[int] = ()) -> bool:
    """Whether all lists but those of these numbers match everything."""
    return all(text in ("*", "") for index, text in enumerate(lists) if index not in kept)


def _made(maker: Callable[[list[str]], Condition], text: str) -> Condition:
    words = [each for each in text.split(",") if each]
    if not words or "*" in words:
        return ALWAYS
    try:
        return maker(words)
    except ValueError as error:
        return Condition((), str(error))


def _users(words: list[str]) -> Condition:
    return of_users(words)


def _sources(words: list[str]) -> Condition:
    found = Addresses.union([values.addresses(word) for word in words])
    return Condition((Region(clients=found),)) if found else NEVER


def _targets(words: list[str]) -> Condition:
    numeric, names, unclear = list[Addresses](), list[Names](), ""
    for word in words:
        if _is_numeric(word):
            numeric.append(values.addresses(word))
            continue
        some, inexact = _pattern(word.lower())
        names.append(some)
        unclear = inexact or unclear
    regions = tuple(Region(hosts=each) for each in (Addresses.union(numeric), Names.union(names)) if each)
    return Condition(regions, unclear, (EVERYTHING,)) if unclear else Condition(regions)


def _is_numeric(word: str) -> bool:
    return ":" in word or (word[:1].isdecimal() and all(sign in "0123456789./-" for sign in word))


def _pattern(word: str) -> tuple[Names, str]:
    """The names that a pattern has for certain, and why it may have more."""
    body = word.removeprefix("*").removeprefix(".").removesuffix("*")
    if word.endswith("*") or not is_host_name(body):
        return NO_NAMES, f"{word}: rules have no patterns inside of names"
    alone, none = frozenset({body}), frozenset[str]()
    if word.startswith("*."):
        return Names(none, alone), ""
    if word.startswith("*"):
        return Names(alone, alone), f"{word} also matches names that end so in the middle of a label; write *.{body}"
    return Names(alone, none), ""


def _ports(words: list[str]) -> Condition:
    spans = Intervals.of(span for word in words for span in values.ports(word).ranges)
    return Condition((Region(ports=spans),)) if spans else NEVER


def _operations(words: list[str], service: str) -> Condition:
    if service == "socks":
        wanted = _OF_SOCKS & set(words)
        if not wanted:
            return NEVER
        return ALWAYS if wanted == _OF_SOCKS else Condition((), "rules don't distinguish CONNECT, BIND and UDPASSOC")
    methods = frozenset[str]().union(*(_HTTP.get(word, frozenset()) for word in words))
    if service == "auto" and _OF_SOCKS & set(words):
        return Condition((), "rules don't distinguish tunnels of HTTP and of SOCKS")
    if "HTTP_OTHER" in words and "HTTP" not in words:
        return replace(of_methods(methods), unclear="HTTP_OTHER: rules name methods one by one", most=(PLAIN_HTTP,))
    return of_methods(methods)


def _days(words: list[str]) -> Condition:
    days: set[int] = set()
    for word in words:
        first, dash, last = word.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(last or first) > 7:
            raise ValueError(f"{word} is no day from 0 to 7")
        days.update((number - 1) % 7 for number in range(int(first), int(last or first) + 1))
    return Condition((Region(minutes=Intervals.of((day * DAY, day * DAY + DAY - 1) for day in days)),))


def _times(words: list[str]) -> Condition:
    spans = [span for word in words for span in _span(word)]
    found = Intervals.of((day * DAY + low, day * DAY + high) for day in range(7) for low, high in spans)
    return Condition((Region(minutes=found),)) if found else NEVER


def _span(word: str) -> Iterator[tuple[int, int]]:
    """The whole minutes of `08:00:00-17:00:00`."""
    first, last = (_CLOCK.fullmatch(each) for each in word.partition("-")[::2])
    if first is None or last is None:
        raise ValueError(f"{word} is no time like 08:00:00-17:00:00")
    if first[3] not in (None, "00") or last[3] not in (None, "00", "59"):
        raise ValueError(f"{word}: rules have whole minutes")
    end = int(last[1]) * 60 + int(last[2]) + (last[3] == "59")
    if int(first[1]) * 60 + int(first[2]) < end:
        yield int(first[1]) * 60 + int(first[2]), min(end, DAY) - 1
