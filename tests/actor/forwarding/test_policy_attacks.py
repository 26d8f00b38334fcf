"""Requests that mean what a policy refuses, written so that it might not be noticed. Whatever is refused here must not
have reached the origin."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.bus.messages.specs import PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, notes_heads, read_head
from tests.kit.tables import table

REFUSED, MALFORMED, SENT, UNKNOWN = 403, 400, 200, 502
DENY_ALL = RuleSpec("the rest", use="deny")

Ask = Callable[..., int]


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as shared:
        yield shared


@pytest.fixture(scope="module")
def site() -> Iterator[tuple[Origin, list[bytes]]]:
    """An origin, and the heads that it has seen."""
    seen: list[bytes] = []
    with Origin(notes_heads(seen)) as origin:
        yield origin, seen


@pytest.fixture
def ask(rig: Rig, site: tuple[Origin, list[bytes]]) -> Ask:
    """The status of the response to a request line's target, where what is refused reaches nothing."""
    origin, seen = site

    def asked(target: str, *fields: str, method: str = "GET") -> int:
        before = len(seen)
        lines = (f"{method} {target} HTTP/1.1", f"Host: {origin.authority}", *fields)
        with connect(rig) as client:
            client.sendall("\r\n".join(lines).encode("latin-1") + b"\r\n\r\n")
            status = int(read_response(client)[0].split()[1])
        assert (len(seen) > before) == (status == SENT)
        return status

    return asked


def apply(rig: Rig, *rules: RuleSpec, ended: int = 0) -> None:
    rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", rules, ended=ended),)), policy="office")


ADMIN = (
    "/admin", "/admin/", "/admin/x", "/admin?x", "/%61dmin", "/%61%64%6d%69%6e", "/./admin", "/x/../admin",
    "/x/%2e%2e/admin",
    "/x/.%2E/admin", "/../admin", "//admin", "///admin/x", "/x//../admin", "/;/admin", "/;a=b/admin", "/admin;a=b",
    "/admin;/x", "/x/..;/admin", "/x/..;a/admin", "/x/..%3b/admin", "/%3bx/admin", "/x%2f..%2fadmin",
    "/x%2F..%2Fadmin",
    "/%2fadmin", "/x%5c..%5cadmin", "/x\\..\\admin", "/%252e%252e/admin", "/%25%36%31dmin",
    "/%c0%ae%c0%ae/admin", "/admin%00",
    "/admin%0d%0aX:%20y", "/%u0061dmin", "/%", "/%a", "/x/.//../admin", "/x/y/../../admin", "/x/../y/../admin",
)  # fmt: skip


@table("path", ADMIN)
def test_a_path_that_may_be_the_denied_one_is_refused(
    rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], path: str
) -> None:
    apply(rig, RuleSpec("no admin", paths=("/admin", "/admin/*"), use="deny"))
    assert ask(f"http://{site[0].authority}{path}") in (REFUSED, MALFORMED)


@table("path", ["/", "", "?/admin", "/x?/../admin", "/x/admin", "/administration", "/x/..%20/admin", "/ADMIN"])
def test_a_path_that_is_another_passes(rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], path: str) -> None:
    apply(rig, RuleSpec("no admin", paths=("/admin", "/admin/*"), use="deny"))
    assert ask(f"http://{site[0].authority}{path}") == SENT


@table(
    "path",
    [
        "/", "", "/public", "/publicx/a", "/public/../secret", "/public/%2e%2e/secret", "/public/..;/secret",
        "/public//../secret",
        "/public/..%2fsecret", "/public/..%5csecret", "/public/%252e%252e/secret", "/public/%", "/;/public/../secret",
        "?/public/x", "/x?/public/x", "/PUBLIC/x", "//public/x", "/public%3f/../../secret", "/public%2fx",
    ],
)  # fmt: skip
def test_a_path_that_may_be_another_than_the_allowed_ones_is_refused(
    rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], path: str
) -> None:
    apply(rig, RuleSpec("public", paths=("/public/*",), use="direct"), DENY_ALL)
    assert ask(f"http://{site[0].authority}{path}") == REFUSED


@table("path", ["/public/", "/public/a?x=/../", "/%70ublic/a", "/x/../public/a", "/public/a;b"])
def test_a_path_that_is_allowed_in_every_reading_passes(
    rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], path: str
) -> None:
    apply(rig, RuleSpec("public", paths=("/public/*",), use="direct"), DENY_ALL)
    assert ask(f"http://{site[0].authority}{path}") == SENT


@table(
    ("denied", "path"),
    [
        ("/wiki/Talk:*", "/wiki/Talk%3AMain"),
        ("/wiki/Talk%3A*", "/wiki/Talk:Main"),
        ("/things:delete", "/things%3adelete"),
        ("/Users('1')", "/Users%28%271%27%29"),
        ("/a+b", "/a%2Bb"),
        ("/@admin/*", "/%40admin/x"),
        ("/a[1]", "/a%5B1%5D"),
    ],
)
def test_an_escape_of_a_character_that_needs_none_hides_nothing(
    rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], denied: str, path: str
) -> None:
    apply(rig, RuleSpec("no", paths=(denied,), use="deny"))
    assert ask(f"http://{site[0].authority}{path}") == REFUSED
    apply(rig, RuleSpec("yes", paths=(denied,), use="direct"), DENY_ALL)
    assert ask(f"http://{site[0].authority}{path}") == REFUSED


@table("method", ["POST", "post", "Post"])
def test_the_letters_of_a_method_hide_nothing(
    rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], method: str
) -> None:
    for written in ("POST", "post"):
        apply(rig, RuleSpec("no", methods=(written,), use="deny"))
        assert ask(f"http://{site[0].authority}/", "Content-Length: 0", method=method) == REFUSED


def test_the_letters_of_a_method_allow_nothing(rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]]) -> None:
    apply(rig, RuleSpec("yes", methods=("GET",), use="direct"), DENY_ALL)
    assert [ask(f"http://{site[0].authority}/", method=each) for each in ("GET", "get", "GETX")] == [SENT, 403, 403]


HOSTS = (
    "http://bad.example/", "http://BAD.Example/", "http://bad.example./", "http://bad.example:80/",
    "http://bad.example:00080/",
    "http://bad.example:8080/", "http://bad.example?x", "HTTP://bad.example/", "http://a.bad.example/",
    "http://bad.example:/",
    "http://bad.example%2e/", "http://b%61d.example/", "http://bad.example\\@good.example/",
    "http://good.example@bad.example/",
    "http://bad.example#@good.example/", "http://bad.example\t/", "http://bad.example..:80/",
    "http:bad.example/", "//bad.example/",
    "http:///bad.example/", "http://b\u00e4d.example/", "http://bad\u3002example/".encode().decode("latin-1"),
)  # fmt: skip


@table("target", HOSTS)
def test_the_spelling_of_a_host_hides_nothing(rig: Rig, ask: Ask, target: str) -> None:
    apply(rig, RuleSpec("no", destinations=("bad.example", "*.bad.example"), use="deny"))
    assert ask(target, "X-Forwarded-Host: good.example") in (REFUSED, MALFORMED)


def test_the_target_is_judged_and_sent_whatever_host_says(rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]]) -> None:
    origin, seen = site
    apply(rig, RuleSpec("no", destinations=("bad.example",), use="deny"))
    with connect(rig) as client:
        client.sendall(f"GET http://{origin.authority}/ HTTP/1.1\r\nHost: bad.example\r\n\r\n".encode())
        assert read_response(client)[0].startswith(b"HTTP/1.1 200 ")
    assert seen[-1].startswith(f"GET / HTTP/1.1\r\nHost: {origin.authority}\r\n".encode())
    assert b"bad.example" not in seen[-1]
    apply(rig, RuleSpec("one", destinations=("127.0.0.1",), use="direct"), DENY_ALL)
    assert ask("http://bad.example/") in (REFUSED, UNKNOWN)  # with the allowed one as Host


@table(
    "target",
    ["[::ffff:127.0.0.1]", "[::FFFF:7f00:1]", "[0:0:0:0:0:ffff:127.0.0.1]", "[64:ff9b::7f00:1]", "[2002:7f00:1::]",
     "127.1", "2130706433", "0x7f.0.0.1", "0177.0.0.1", "127.0.0.1.", "localhost", "a.localhost"],
)  # fmt: skip
def test_another_spelling_of_an_address_is_that_address(
    rig: Rig, ask: Ask, site: tuple[Origin, list[bytes]], target: str
) -> None:
    apply(rig, RuleSpec("no", destinations=("127.0.0.0/8", "::1"), use="deny"))
    assert ask(f"http://{target}:{site[0].port}/") in (REFUSED, MALFORMED)


@table("entry", ["xn--pple-43d.example", "*.xn--pple-43d.example"])
def test_a_name_that_only_looks_alike_is_another(rig: Rig, ask: Ask, entry: str) -> None:
    apply(rig, RuleSpec("yes", destinations=(entry,), use="direct"), DENY_ALL)
    for target in (
        "http://apple.example/",
        "http://\xe0\xb0pple.example/",
        "http://xn--pple-43d.example.evil.example/",
    ):
        assert ask(target) in (REFUSED, MALFORMED)


def test_a_rule_about_ports_holds_for_the_default_one_and_for_tunnels(rig: Rig, ask: Ask) -> None:
    apply(rig, RuleSpec("no", destinations=("*:80", "*:443"), use="deny"))
    for target in ("http://127.0.0.1/", "http://127.0.0.1:/", "http://127.0.0.1:080/"):
        assert ask(target) in (REFUSED, MALFORMED)
    for target in ("127.0.0.1:443", "127.0.0.1:0443", "127.0.0.1:80", "127.0.0.1"):
        assert ask(target, method="CONNECT") in (REFUSED, MALFORMED)


def test_a_tunnel_by_101_is_judged_again_by_its_own_path(rig: Rig) -> None:
    def switches(sock: socket.socket) -> None:
        read_head(sock)
        sock.sendall(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: chat\r\n\r\n")
        while data := sock.recv(65536):
            sock.sendall(data)

    upgrade: tuple[Any, ...] = ("Connection: upgrade", "Upgrade: chat")
    apply(rig)
    with Origin(switches) as origin, connect(rig) as client:
        client.sendall(get(origin, "?/allowed", *upgrade))
        assert read_head(client).startswith(b"HTTP/1.1 101 ")
        apply(rig, RuleSpec("yes", paths=("/allowed",), use="direct"), DENY_ALL, ended=1)
        assert client.recv(1) == b""
