"""Paths as rules compare them, and what is done to hide one."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.policies.facts import PathPattern, query_reading, readings
from tests.kit.tables import table


@table(
    ("path", "meant"),
    [
        ("", ("/",)),
        ("/", ("/",)),
        ("/a/b", ("/a/b",)),
        ("/%61dmin", ("/admin",)),
        ("/%7euser", ("/~user",)),
        ("/a/../b", ("/b",)),
        ("/a/%2e%2E/b", ("/b",)),
        ("/a/.%2e/b", ("/b",)),
        ("/../../b", ("/b",)),
        ("/a/./b/.", ("/a/b/",)),
        ("/a/b/..", ("/a/",)),
        ("/.well-known/x", ("/.well-known/x",)),
        ("/caf%c3%a9", ("/caf%C3%A9",)),
        ("/a%20b%3f", ("/a%20b%3F",)),
        ("//admin", ("//admin", "/admin")),
        ("/a//b", ("/a//b", "/a/b")),
        ("/admin;x=1/y", ("/admin;x=1/y", "/admin/y")),
        ("/a/..;/admin", ("/a/..;/admin", "/admin")),
        ("/a/..%3bx/admin", ("/a/..%3Bx/admin", "/admin")),
        ("*", ("*",)),
        ("/a:b!", ("/a:b!",)),
        ("/a%3Ab%21", ("/a%3Ab%21", "/a:b!")),
        ("/%2a%5b%7c%7C", ("/%2A%5B%7C%7C", "/*[||")),
        ("/a%20%22", ("/a%20%22", '/a%20"')),
        ("/a%23%3F", ("/a%23%3F",)),
    ],
)
def test_a_path_may_mean(path: str, meant: tuple[str, ...]) -> None:
    assert readings(path) == meant


@table(
    "path",
    [
        "/a%2f..%2fb", "/a%2Fb", "/a%5c..%5cb", "/a\\b", "/a%252e%252e/b", "/a%00b", "/a%0d%0ab", "/a%7f", "/a%",
        "/a%4", "/a%zz", "/a%u002e", "/%c0%ae%c0%ae/b", "/%ff", "/caf\xe9",
    ],
)  # fmt: skip
def test_a_path_with_no_certain_meaning_has_no_reading(path: str) -> None:
    assert readings(path) == ()


@given(st.text(alphabet="/.a%2eE;fF5c*", max_size=24))
def test_a_reading_is_its_own_only_reading_or_has_none(path: str) -> None:
    for reading in readings("/" + path):
        assert ".." not in reading.split("/")
        again = readings(reading)
        assert reading in again or not again


@given(st.text(alphabet="/ab*", min_size=1, max_size=8), st.text(alphabet="/ab", max_size=12))
def test_a_star_stands_for_anything(pattern: str, path: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), path) is not None
    assert PathPattern(pattern).matches(path) == expected


def test_a_pattern_may_be_written_with_escapes_or_without() -> None:
    assert PathPattern("/%7euser/%C3%a9*").matches("/~user/%C3%A9t%C3%A9")
    assert PathPattern("/é").matches("/%C3%A9")


@table(
    ("pattern", "path", "strict", "lenient"),
    [
        ("/talk:*", "/talk:a", True, True),
        ("/talk:*", "/talk%3aa", False, True),
        ("/talk%3A*", "/talk:a", False, True),
        ("/talk%3A*", "/talk%3aa", True, True),
        ("/a%2A", "/ab", False, False),
        ("/a%2A", "/a*", False, True),
    ],
)
def test_an_escape_that_need_not_be_one_matches_in_the_lenient_reading(
    pattern: str, path: str, strict: bool, lenient: bool
) -> None:
    found = readings(path)
    asked = PathPattern(pattern)
    assert (asked.matches(found[0]), asked.lenient.matches(found[-1])) == (strict, lenient)


@table(
    ("query", "meant"),
    [("", ""), ("a=b", "a=b"), ("%2e%2F%25", "./%"), ("%252e", "%2e"), ("a+b", "a+b"), ("%e9", "\xe9"), ("?", "?")],
)
def test_a_query_means(query: str, meant: str) -> None:
    assert query_reading(query) == meant


@table("query", ["%", "%2", "%zz", "a%00b", "%0a", "%1F", "%7f", "a b", "\xe9"])
def test_a_query_of_no_certain_meaning_matches_only_rules_that_refuse(query: str) -> None:
    pattern = PathPattern("/*?*x")
    assert query_reading(query) is None
    assert pattern.query_matches(query, otherwise=True)
    assert not pattern.query_matches(query, otherwise=False)


@table(
    ("written", "query", "holds"),
    [
        ("/a", None, True),
        ("/a", "x", True),
        ("/a?", "", True),
        ("/a?", None, False),
        ("/a?", "x", False),
        ("/a?*", "x", True),
        ("/*?*.iso", "f=b.iso", True),
        ("/*?*.iso", "f=b%2Eiso", True),
        ("/*?*.iso", "f=b.iso&x", False),
        ("/a?x=%2F*", "x=/b", True),
        ("/a?x=?*", "x=?1", True),
    ],
)
def test_patterns_with_queries(written: str, query: str | None, holds: bool) -> None:
    pattern = PathPattern(written)
    assert pattern.query_matches(query, otherwise=False) is holds
    assert pattern.lenient.prefix.startswith("/")
    assert pattern.is_for_queries is ("?" in written)
