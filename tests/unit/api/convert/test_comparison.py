"""What a log of squid is compared with, and what of it can't be."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from api.import_export.convert import comparison as module
from api.import_export.convert.comparison import Comparison, compare
from api.import_export.convert.conversion import converted
from api.import_export.convert.squid.access_log import LINE_MAX, Unreadable, entry_of, lines_of

CONFIGURATION = """
acl lan src 10.0.0.0/8
acl bad dstdomain -n .bad.example
acl inner dst 192.0.2.0/24
acl intern dstdomain -n .intern.example
acl page urlpath_regex ^/private/
acl night time MTWHFAS 00:00-05:59
http_access deny night
http_access deny page
http_access deny bad
http_access deny inner
http_access allow lan
http_access deny all
cache_peer 203.0.113.9 parent 3128 0 name=gw
cache_peer_access gw allow intern
cache_peer_access gw deny all
never_direct allow intern
http_port 3128
"""
DAY, NIGHT = "1717401600.123", "1717376400.123"
"""12:00 and 5:00 in UTC."""


def document_of(tmp_path: Path, text: str = CONFIGURATION) -> dict[str, Any]:
    file = tmp_path / "squid.conf"
    file.write_text(text)
    found = converted(file, "squid", "UTC")
    assert found.problems == []
    return found.document


def compared(document: dict[str, Any], *lines: str) -> Comparison:
    content = "".join(f"{line}\n" for line in lines).encode()
    return compare(document, [Path("access.log")], lambda _path: io.BytesIO(content))


def line(request: str, outcome: str, way: str = "HIER_NONE/-", time: str = DAY, client: str = "10.0.0.1") -> str:
    return f"{time}     45 {client} {outcome} 1234 {request} - {way} text/html"


@pytest.mark.parametrize(
    "written",
    [
        line("GET http://a.example/", "TCP_MISS/200", "HIER_DIRECT/198.51.100.1"),
        line("GET http://198.51.100.1/", "TCP_HIT/200"),
        line("CONNECT a.example:443", "TCP_TUNNEL/200", "HIER_DIRECT/198.51.100.1"),
        line("CONNECT [2001:db8::1]:443", "TCP_TUNNEL/200", "HIER_DIRECT/2001:db8::1"),
        line("GET http://www.intern.example/", "TCP_MISS/200", "FIRSTUP_PARENT/203.0.113.9"),
        line("GET http://bad.example/", "TCP_DENIED/403"),
        line("GET http://a.example/private/x", "TCP_DENIED/403"),
        line("GET http://a.example/", "TCP_DENIED/403", time=NIGHT),
        line("GET http://192.0.2.7/", "TCP_DENIED/403"),
        line("GET http://a.example/", "TCP_DENIED/403", client="192.0.2.1", way="HIER_NONE/198.51.100.1"),
        '10.0.0.1 - - [03/Jun/2024:12:00:00 +0000] "GET http://bad.example/ HTTP/1.1" 403 3900 TCP_DENIED:HIER_NONE',
        '10.0.0.1 - - [03/Jun/2024:12:00:00 +0000] "GET http://bad.example/ HTTP/1.1" 403 3 "" "" TCP_DENIED:HIER_NONE',
        '10.0.0.1 - - [03/Jun/2024:05:00:00 +0000] "CONNECT a.example:443 HTTP/1.1" 403 3900 TCP_DENIED:HIER_NONE',
    ],
)
def test_what_is_decided_alike(tmp_path: Path, written: str) -> None:
    found = compared(document_of(tmp_path), written)
    assert (found.alike, found.different, found.left_out) == (1, 0, {})


@pytest.mark.parametrize(
    ("written", "group"),
    [
        (line("GET http://bad.example/", "TCP_MISS/200"), ("allowed", "refused", "line 10: deny bad")),
        (
            line("CONNECT www.bad.example:443", "TCP_TUNNEL/200", "HIER_DIRECT/198.51.100.1"),
            ("direct", "refused", "line 10: deny bad"),
        ),
        (
            line("GET http://www.intern.example/", "TCP_MISS/200", "HIER_DIRECT/198.51.100.1"),
            ("direct", "upstream", "line 12: allow lan, upstreams-gw"),
        ),
        (
            line("GET http://a.example/", "TCP_DENIED/403", "HIER_NONE/198.51.100.1"),
            ("refused", "direct", "line 12: allow lan, direct"),
        ),
        (
            line("GET http://a.example/", "TCP_DENIED/407", "HIER_NONE/198.51.100.1"),
            ("asked", "direct", "line 12: allow lan, direct"),
        ),
        (line("GET http://a.example/", "TCP_MISS/200", time=NIGHT), ("allowed", "refused", "line 8: deny night")),
    ],
)
def test_what_is_decided_in_another_way(tmp_path: Path, written: str, group: tuple[str, str, str]) -> None:
    found = compared(document_of(tmp_path), written)
    assert list(found.groups) == [group]
    assert found.groups[group].examples[0][0] == "access.log:1"


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "is neither"),
        ("a b c", "is neither"),
        ("x" * (LINE_MAX + 5), "is longer"),
        (line("GET http://a.example/", "TCP_MISS/200", client="host.example"), "no address of a client"),
        *(
            (line("GET http://a.example/", "TCP_MISS/200", time=time), "no time of a request")
            for time in ("nan", "inf", "1e300", "-1e18")
        ),
        (line("NONE error:invalid-request", "NONE_NONE/400"), "no request of plain HTTP"),
        (line("GET ftp://a.example/", "TCP_MISS/200"), "no request of plain HTTP"),
        (line("GET http://a:b:c/", "TCP_MISS/200"), "no target of a proxy"),
        (line("GET http://a.example/", "NONE/503"), "a failure of squid"),
        (line("GET http://a.example/", "TCP_DENIED/403"), "need the address"),
        ('10.0.0.1 - - [yesterday] "GET http://bad.example/ HTTP/1.1" 403 3900 TCP_DENIED:HIER_NONE', "is neither"),
    ],
)
def test_what_can_not_be_compared_is_counted_with_its_reason(tmp_path: Path, written: str, why: str) -> None:
    found = compared(document_of(tmp_path), line("GET http://bad.example/", "TCP_DENIED/403"), written)
    [(reason, (count, first))] = found.left_out.items()
    assert why in reason
    assert (found.lines, found.alike, count, first) == (2, 1, 1, "access.log:2")


def test_queries_that_squid_left_out_of_its_log_are_not_compared_with_rules_that_need_them(tmp_path: Path) -> None:
    text = "acl iso urlpath_regex \\.iso$\nhttp_access deny iso\nhttp_access allow all\nhttp_port 3128\n"
    lines = [line(f"GET http://a.example/{path}", "TCP_DENIED/403") for path in ("a.iso", "a?f=b.iso", "a?")]
    found = compared(document_of(tmp_path, text), *lines)
    assert (found.alike, found.different) == (2, 0)
    assert "strip_query_terms" in next(iter(found.left_out))


def test_users_have_accounts_and_the_others_are_asked(tmp_path: Path) -> None:
    text = "auth_param basic program /bin/true\nacl alice proxy_auth alice\nhttp_access allow alice\nhttp_port 3128\n"
    document = document_of(tmp_path, text)

    def of(user: str, outcome: str) -> str:
        return line("CONNECT a.example:443", outcome).replace(" - HIER", f" {user} HIER")

    found = compared(
        document, of("-", "TCP_DENIED/407"), of("alice", "TCP_TUNNEL/200"), of("b%20b", "TCP_DENIED/403"),
        of("alice", "TCP_DENIED/407"), of("bob", "TCP_TUNNEL/200"),
    )  # fmt: skip
    assert (found.alike, list(found.groups)) == (3, [("allowed", "refused", "no line matches")])
    assert [*found.left_out] == ["a line that is about a wrong password"]


def test_what_is_allowed_though_squid_refused_it_comes_first(tmp_path: Path) -> None:
    stricter = line("GET http://bad.example/?secret", "TCP_MISS/200")
    laxer = line("GET http://a.example/", "TCP_DENIED/403", "HIER_NONE/198.51.100.1")
    found = compared(document_of(tmp_path), *[stricter] * 5, laxer)
    assert [each.count for each in found.sorted_groups] == [1, 5]
    assert len(found.sorted_groups[1].examples) == 3
    assert "secret" not in "\n".join(found.texts())


def test_groups_and_memory_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GROUPS_MAX", 2)
    monkeypatch.setattr(module, "KEPT_MAX", 100)
    names = "\n".join(f"acl d{n} dstdomain -n .d{n}.example\nhttp_access deny d{n}" for n in range(20))
    document = document_of(tmp_path, f"{names}\nhttp_port 1\n")
    lines = [line(f"CONNECT x{n}.d{n % 20}.example:443", "TCP_TUNNEL/200") for n in range(30_000)]
    content = "\n".join(lines).encode()
    tracemalloc.start()
    try:
        found = compare(document, [Path("access.log")], lambda _path: io.BytesIO(content))
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.different == 30_000
    assert len(found.groups) == 3
    assert used < 3_000_000


def test_decisions_about_long_requests_are_not_kept(tmp_path: Path) -> None:
    text = "acl page urlpath_regex ^/private/\nhttp_access deny page\nhttp_access allow all\nhttp_port 1\n"
    document = document_of(tmp_path, text)
    lines = (line(f"GET http://a{n}.example/{'x' * 30_000}", "TCP_MISS/200", "HIER_DIRECT/-") for n in range(300))
    content = "\n".join(lines).encode()
    tracemalloc.start()
    try:
        assert compare(document, [Path("access.log")], lambda _path: io.BytesIO(content)).alike == 300
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert used < 3_000_000


def test_long_lines_are_passed_over() -> None:
    content = b"a\n" + b"x" * (3 * LINE_MAX) + b"\n" + b"b" * LINE_MAX + b"\nc"
    assert [each if each is None else len(each) for each in lines_of(io.BytesIO(content))] == [2, None, None, 1]
    with pytest.raises(Unreadable, match="longer"):
        entry_of(None)
