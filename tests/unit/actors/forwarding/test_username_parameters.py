"""How user names with parameters are read: examples, and a slow plain model."""

from __future__ import annotations

import string
import tracemalloc
from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from actors.forwarding.access.username_parameters import (
    NO_PARAMETERS,
    PARAMETERS_MAX,
    ParameterNames,
    Parameters,
    SessionSuffix,
    Understood,
)
from tests.kit.tables import table

NAMES = ParameterNames("-", frozenset(("speed",)), frozenset(("tier",)))
KNOWN = ("session", "ttl", "rotate", "country", "city", "asn", "isp", "speed", "tier")


def read(username: str, *accounts: str, names: ParameterNames = NAMES, guess: bool = False) -> Understood:
    return names.understood(username, accounts.__contains__, guess)


def test_a_name_with_all_of_them() -> None:
    account, found, problem = read("alice-session-7-ttl-90-country-de-rotate-tier-gold", "alice")
    assert (account, problem) == ("alice", "")
    assert found == Parameters("7", 90.0, True, {"country": "de"}, (), {"tier": "gold"})
    assert found.asked == {"country": "de", "tier": "gold", "session": "7"}
    assert found.text == "session=7 ttl=90 country=de tier=gold rotate"


@table(
    ("username", "accounts", "account", "text", "unknown"),
    [
        ("alice", ["alice"], "alice", "", ()),
        ("alice-session-7", ["alice"], "alice", "session=7 ttl=600", ()),
        ("alice-session-7", ["alice", "alice-session-7"], "alice-session-7", "", ()),
        ("team-a-session-7", ["team", "team-a"], "team-a", "session=7 ttl=600", ()),
        ("team-a-session-7", ["team"], "team", "session=7 ttl=600", ("a",)),
        ("team-session-7", ["team", "team-session"], "team-session", "", ("7",)),
        ("alice-colour-blue", ["alice"], "alice", "", ("colour=blue",)),
        ("alice-colour-blue-country-de", ["alice"], "alice", "country=de", ("colour=blue",)),
        ("alice-bogus-country-de", ["alice"], "alice", "country=de", ("bogus",)),
        ("alice-session-rotate", ["alice"], "alice", "session=rotate ttl=600", ()),
        ("alice-rotate-session-7", ["alice"], "alice", "session=7 ttl=600 rotate", ()),
        ("alice-city-s\u00e3o paulo", ["alice"], "alice", "city=s\u00e3o%20paulo", ()),
        ("alice-ttl-5", ["alice"], "alice", "", ()),
        ("alice-Session-7", ["alice"], "alice", "", ("Session=7",)),
    ],
)
def test_which_part_is_the_account(
    username: str, accounts: list[str], account: str, text: str, unknown: tuple[str, ...]
) -> None:
    found = read(username, *accounts)
    assert (found.account, found.parameters.text, found.parameters.unknown) == (account, text, unknown)
    assert not found.problem


@table(
    ("parameters", "problem"),
    [
        ("session", "session has no value"),
        ("session-", "the value of session has 1 to 64 printable characters"),
        ("session-7-session-8", "session is there twice"),
        ("rotate-rotate", "rotate is there twice"),
        ("session-7-ttl", "ttl has no value"),
        ("ttl-0", "ttl is seconds, 1 to 86400"),
        ("ttl-86401", "ttl is seconds, 1 to 86400"),
        ("ttl-x", "ttl is seconds, 1 to 86400"),
        ("ttl-\u0663", "ttl is seconds, 1 to 86400"),
        ("ttl-" + "9" * 60, "ttl is seconds, 1 to 86400"),
        ("", "the name of a parameter has 1 to 64 printable characters"),
        ("-session-7", "the name of a parameter has 1 to 64 printable characters"),
        ("session-a\r\nX: y", "the value of session has 1 to 64 printable characters"),
        ("session-\x1b[2J", "the value of session has 1 to 64 printable characters"),
        ("session-\u2028", "the value of session has 1 to 64 printable characters"),
        ("session-\u202edcba", "the value of session has 1 to 64 printable characters"),
        ("session-\udcff", "the value of session has 1 to 64 printable characters"),
        ("x\n-y", "the name of a parameter has 1 to 64 printable characters"),
        ("session-" + "x" * 65, "the value of session has 1 to 64 printable characters"),
        ("-".join(f"n{i}-v" for i in range(PARAMETERS_MAX)) + "-n-v", ""),
    ],
)
def test_what_is_no_parameters_is_no_account_either(parameters: str, problem: str) -> None:
    found = read(f"alice-{parameters}", "alice")
    assert found.account == f"alice-{parameters}"
    assert found.parameters is NO_PARAMETERS
    assert found.problem == (f"alice is an account, but {problem}" if problem else "")


@table(
    ("username", "account", "session"),
    [
        ("bob-session-7", "bob", "7"),
        ("team-a-session-7", "team-a", "7"),
        ("bob-colour-blue", "bob-colour-blue", None),
        ("session-7", "session-7", None),
        ("-session-7", "-session-7", None),
        ("bob-session-7-colour-blue", "bob", "7"),
        ("bob-ttl-x-session-7", "bob-ttl-x", "7"),
    ],
)
def test_of_a_name_of_no_account_the_account_ends_at_the_first_known_parameter(
    username: str, account: str, session: str | None
) -> None:
    found = NAMES.understood(username, None, True)
    assert (found.account, found.parameters.session) == (account, session)
    assert read(username, guess=True) == found
    assert read(username).account == username


def test_all_beginnings_are_asked_for_whichever_exist() -> None:
    def asked(*accounts: str) -> list[str]:
        names: list[str] = []
        NAMES.understood("a-b-session-7", lambda name: bool(names.append(name)) or name in accounts, True)
        return names

    assert asked() == ["a-b-session-7", "a-b-session", "a-b", "a"]
    assert asked("a-b") == asked("a") == asked("a-b", "a-b-session") == asked()


def test_a_long_name_costs_a_bounded_number_of_questions_and_little_memory() -> None:
    asked = 0

    def exists(_name: str) -> bool:
        nonlocal asked
        asked += 1
        return False

    for name in ("-" * 60_000, "a-" * 30_000, "session-" * 8_000, "x-country-de" * 5_000):
        asked = 0
        tracemalloc.start()
        NAMES.understood(name, exists, True)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert asked <= 2 * PARAMETERS_MAX + 1
        assert peak < 400_000


@table("separator", "-.~+=,;")
def test_every_separator_that_is_allowed(separator: str) -> None:
    username = separator.join(("alice", "session", "7", "country", "de"))
    found = read(username, "alice", names=ParameterNames(separator))
    assert (found.account, found.parameters.text) == ("alice", "session=7 ttl=600 country=de")


# --- the suffix of a proxy without username_params ---


@table(
    ("username", "account", "session"),
    [
        ("alice-session-42", "alice", "42"),
        ("alice", "alice", None),
        ("alice-session-", "alice-session-", None),
        ("-session-42", "-session-42", None),
        ("a-session-b-session-c", "a-session-b", "c"),
        ("alice-sessions-42", "alice-sessions-42", None),
        ("alice-session-4-2-ttl-5", "alice", "4-2-ttl-5"),
    ],
)
def test_the_suffix_is_what_stands_behind_the_last_mark(username: str, account: str, session: str | None) -> None:
    found = SessionSuffix().understood(username, None)
    assert (found.account, found.parameters) == (account, Parameters(session))
    assert SessionSuffix().understood(username, {username}.__contains__) == Understood(username)


# --- compared with a slow plain model ---


def _model_parameters(words: list[str]) -> list[tuple[str, str | None]] | None:
    """The pairs in the words; None: they are none."""
    if not words:
        return []
    name, rest = words[0], words[1:]
    value: str | None = None
    if not name:
        return None
    if name == "rotate" or (name not in KNOWN and (not rest or rest[0] in KNOWN)):
        pass
    elif not rest or not rest[0]:
        return None
    else:
        value, rest = rest[0], rest[1:]
    if name == "ttl" and value is not None and not (value.isdigit() and 0 < int(value) <= 86400):
        return None
    others = _model_parameters(rest)
    if others is None or (name in KNOWN and name in [other for other, _value in others]):
        return None
    return [(name, value), *others]


def _model(username: str, accounts: Iterable[str]) -> tuple[str, list[tuple[str, str | None]]]:
    if username in accounts:
        return username, []
    words = username.split("-")
    for count in range(len(words) - 1, 0, -1):
        account, found = "-".join(words[:count]), _model_parameters(words[count:])
        if account in accounts and found is not None:
            return account, found
    return username, []


_WORDS = st.sampled_from((*KNOWN, "", "a", "b", "team", "7", "0", "600", "de"))
_NAMES = st.lists(_WORDS, min_size=1, max_size=9).map("-".join)


@given(_NAMES, st.lists(st.lists(_WORDS, min_size=1, max_size=3).map("-".join).filter(bool), max_size=6))
@example("a-session-7", ["a", "a-session"])
def test_it_reads_as_the_plain_model(username: str, accounts: list[str]) -> None:
    account, pairs = _model(username, accounts)
    found = read(username, *accounts)
    by_name = {name: value for name, value in pairs if name in KNOWN}
    assert found.account == account
    expected = Parameters(
        by_name.get("session"),
        float(by_name.get("ttl") or 600),
        "rotate" in by_name,
        {name: by_name[name] or "" for name in ("country", "city", "asn", "isp", "speed") if name in by_name},
        tuple(name if value is None else f"{name}={value}" for name, value in pairs if name not in KNOWN),
        {"tier": by_name["tier"] or ""} if "tier" in by_name else {},
    )
    assert found.parameters == expected


_HARMLESS = set(string.ascii_letters + string.digits + "_.-~+%=? ")


@given(st.text(st.characters(), max_size=60), st.sampled_from(("session-", "country-", "", "x-")))
def test_what_is_recorded_has_neither_control_characters_nor_forged_parameters(text: str, name: str) -> None:
    found = read(f"alice-{name}{text}", "alice").parameters
    assert found.recorded.isprintable()
    assert {each for each in found.recorded if each.isascii()} <= _HARMLESS
    assert len(found.recorded.split()) == len(found.labels) + len(found.marks) + len(found.unknown) + (
        found.rotate + 2 * (found.session is not None)
    )
    values = [found.session or "", *found.labels.values(), *found.marks.values()]
    assert all(value.isprintable() and len(value) <= 64 for value in values)
