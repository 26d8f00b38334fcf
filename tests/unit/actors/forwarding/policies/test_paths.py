"""Paths as rules compare them, and what is done to hide one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.policies.paths import PathPattern, readings


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "path",
    [
        "/a%2f..%2fb",
        "/a%2Fb",
        "/a%5c..%5cb",
        "/a\\b",
        "/a%252e%252e/b",
        "/a%00b",
        "/a%0d%0ab",
        "/a%7f",
        "/a%",
        "/a%4",
        "/a%zz",
        "/a%u002e",
        "/%c0%ae%c0%ae/b",
        "/%ff",
        "/caf\xe9",
    ],
)
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


@pytest.mark.parametrize(
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
