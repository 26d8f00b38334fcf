"""What a log of squid is compared with, and what of it can't be."""

from __future__ import annotations

import io
import tracemalloc
from pathlib import Path
from typing import Any

from api.import_export.convert import converted
from api.import_export.convert.comparison import LINE_MAX, Comparison, compare
from tests.kit.tables import table

CONFIGURATION = """
acl lan src 10.0.0.0/8
acl bad dstdomain -n .bad.example
acl inner dst 192.0.2.0/24
acl intern dstdomain -n .intern.example
acl guests src 10.9.0.0/16
http_access deny guests
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


def document_of(tmp_path: Path, text: str = CONFIGURATION) -> dict[str, Any]:
    file = tmp_path / "squid.conf"
    file.write_text(text)
    found = converted(file, "squid")
    assert found.problems == []
    return found.document


def compared(document: dict[str, Any], *lines: str) -> Comparison:
    content = "".join(f"{line}\n" for line in lines).encode()
    return compare(document, [Path("access.log")], lambda _path: io.BytesIO(content))


def line(
    request: str, outcome: str, way: str = "HIER_NONE/-", time: str = "1717401600.123", client: str = "10.0.0.1"
) -> str:
    return f"{time}     45 {client} {outcome} 1234 {request} - {way} text/html"


@table(
    "written",
    [
        line("GET http://a.example/", "TCP_MISS/200", "HIER_DIRECT/198.51.100.1"),
        line("GET http://198.51.100.1/", "TCP_HIT/200"),
        line("CONNECT a.example:443", "TCP_TUNNEL/200", "HIER_DIRECT/198.51.100.1"),
        line("CONNECT [2001:db8::1]:443", "TCP_TUNNEL/200", "HIER_DIRECT/2001:db8::1"),
        line("GET http://www.intern.example/", "TCP_MISS/200", "FIRSTUP_PARENT/203.0.113.9"),
        line("GET http://bad.example/", "TCP_DENIED/403"),
        line("GET http://a.example/", "TCP_DENIED/403", client="10.9.0.1"),
        line("GET http://192.0.2.7/", "TCP_DENIED/403"),
        line("GET http://a.example/", "TCP_DENIED/403", client="192.0.2.1", way="HIER_NONE/198.51.100.1"),
    ],
)
def test_what_is_decided_alike(tmp_path: Path, written: str) -> None:
    found = compared(document_of(tmp_path), written)
    assert (found.alike, found.different, found.left_out) == (1, 0, {})


@table(
    ("written", "group"),
    [
        (line("GET http://bad.example/", "TCP_MISS/200"), ("allowed", "refused", "line 8: deny bad")),
        (
            line("CONNECT www.bad.example:443", "TCP_TUNNEL/200", "HIER_DIRECT/198.51.100.1"),
            ("direct", "refused", "line 8: deny bad"),
        ),
        (
            line("GET http://www.intern.example/", "TCP_MISS/200", "HIER_DIRECT/198.51.100.1"),
            ("direct", "upstream", "line 10: allow lan, upstreams-gw"),
        ),
        (
            line("GET http://a.example/", "TCP_DENIED/403", "HIER_NONE/198.51.100.1"),
            ("refused", "direct", "line 10: allow lan, direct"),
        ),
        (
            line("GET http://a.example/", "TCP_DENIED/407", "HIER_NONE/198.51.100.1"),
            ("asked", "direct", "line 10: allow lan, direct"),
        ),
        (
            line("GET http://a.example/", "TCP_MISS/200", client="10.9.0.1"),
            ("allowed", "refused", "line 7: deny guests"),
        ),
    ],
)
def test_what_is_decided_in_another_way(tmp_path: Path, written: str, group: tuple[str, str, str]) -> None:
    found = compared(document_of(tmp_path), written)
    assert list(found.groups) == [group]
    assert found.groups[group].examples[0][0] == "access.log:1"


@table(
    ("written", "why"),
    [
        ("", "not in squid's own format"),
        ("a b c", "not in squid's own format"),
        ("x" * LINE_MAX, "not in squid's own format"),
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
        ('10.0.0.1 - - [yesterday] "GET http://b.example/ HTTP/1.1" 403 3 TCP_DENIED:HIER_NONE', "not in squid's own"),
    ],
)
def test_what_can_not_be_compared_is_counted_with_its_reason(tmp_path: Path, written: str, why: str) -> None:
    found = compared(document_of(tmp_path), line("GET http://bad.example/", "TCP_DENIED/403"), written)
    [(reason, (_count, first))] = found.left_out.items()
    assert why in reason
    assert (found.alike, first) == (1, "access.log:2")


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


def test_a_log_of_many_and_long_requests_takes_little_memory(tmp_path: Path) -> None:
    document = document_of(tmp_path)
    many = [line(f"CONNECT x{number}.bad.example:443", "TCP_TUNNEL/200") for number in range(3_000)]
    long = [
        line(f"GET http://a{n}.example/{'x' * 30_000}", "TCP_MISS/200", "HIER_DIRECT/198.51.100.1") for n in range(100)
    ]
    content = "\n".join([*many, *long]).encode()
    tracemalloc.start()
    try:
        found = compare(document, [Path("access.log")], lambda _path: io.BytesIO(content))
        used = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (found.different, found.alike) == (3_000, 100)
    assert used < 700_000
