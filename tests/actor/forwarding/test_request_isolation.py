"""Nothing of one request of a connection is taken for the next: upstream, session word, user, test, or policy."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Done
from actors.bus.messages.forwarding import AllowTestClient, QueryTester, ReportOfTest
from actors.bus.messages.specs import QueryUpstreams, Upstreams
from actors.forwarding.access.authenticator import TESTERS_MAX, Testers
from tests.actor.forwarding.account_client import HASH, OTHER_HASH, WORD, account, credentials, echo, give
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.connection_pages import page as connections_of
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, address, arrive, exactly, reply
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, responds
from tests.kit.tables import table
from tests.kit.upstreams import of_rig, upstream_list

AUTH: dict[str, Any] = {"auth_username": "ada", "auth_hash": HASH, "auth_required": True}
NO_AUTH: dict[str, Any] = {"auth_username": None, "auth_hash": None, "auth_required": False, "accounts": ()}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Rig]:
    with Rig(id="upstream") as one:
        yield one


@pytest.fixture(scope="module")
def through(upstream: Rig) -> Iterator[Rig]:
    """A proxy with an upstream."""
    with Rig(params={"handshake_timeout": 3.0}, upstreams=upstream_list(of_rig(upstream))) as one:
        yield one


@pytest.fixture(scope="module")
def plain() -> Iterator[Rig]:
    with Rig() as one:
        yield one


def state_of(rig: Rig) -> Any:
    response = rig.ask(QueryUpstreams())
    assert isinstance(response, Upstreams)
    return response.states


VIA = "Via: 1.1 proxyfleet-px1"
REFUSED_EARLY = {
    "400": (b"nonsense\r\n\r\n", 400),
    "408": (b"GET http://half.a.head/", 408),
    "OPTIONS": (b"OPTIONS http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\nMax-Forwards: 0\r\n\r\n", 200),
    "loop": (f"PUT http://127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n{VIA}\r\n\r\n".encode(), 502),
}


@table("how", REFUSED_EARLY)
def test_what_is_refused_before_an_origin_opens_went_through_no_upstream(through: Rig, how: str) -> None:
    through.configure(**NO_AUTH)
    through.records.clear()
    request, status = REFUSED_EARLY[how]
    with Origin(responds(counted(b"one"))) as origin, connect(through) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"one"
        first = through.record(target_url=f"http://{origin.authority}/")
        before = state_of(through)
        client.sendall(request)
        assert client.recv(1000).split()[1] == str(status).encode()
        second = until(
            lambda: next((r for r in list(through.records) if r["method"] in ("", "OPTIONS", "PUT")), None), ""
        )
    assert (first["parent"], second["parent"]) == (through.spec.upstreams.entries[0].name, "")
    assert state_of(through) == before, "neither its bytes nor its state are changed by what it never saw"


def test_a_request_without_the_credentials_of_the_one_before_went_through_no_upstream(through: Rig) -> None:
    through.configure(**AUTH)
    with Origin(responds(counted(b"one"))) as origin, connect(through) as client:
        client.sendall(get(origin, "/known", credentials("ada")))
        assert read_response(client)[1] == b"one"
        client.sendall(get(origin, "/unknown"))
        assert read_response(client)[0].split()[1] == b"407"
        second = through.record(target_url=f"http://{origin.authority}/unknown")
    assert (second["parent"], second["user"]) == ("", "")


def test_a_request_without_a_session_word_goes_by_no_word_of_the_one_before(upstream: Rig) -> None:
    """As from a balancer that uses its connections for many people."""
    many = [replace(of_rig(upstream), name=f"p{number}", username=f"u{number}", password="x") for number in range(8)]
    with Rig(upstreams=upstream_list(*many, policy="sticky")) as rig, Origin(responds(*[counted(b"x")] * 40)) as origin:

        def upstream_of(client: socket.socket, path: str, *fields: str) -> str:
            client.sendall(get(origin, path, *fields))
            assert read_response(client)[1] == b"x"
            name: str = rig.record(target_url=f"http://{origin.authority}{path}")["parent"]
            return name

        with connect(rig) as client:
            own = upstream_of(client, "/own")
        for word in range(30):
            with connect(rig) as client:
                if upstream_of(client, f"/word-{word}", credentials(f"bob-session-{word}", "x")) != own:
                    assert upstream_of(client, f"/without-{word}") == own
                    return
        raise AssertionError("no word chose another upstream")


def test_credentials_that_come_to_be_wanted_are_wanted_of_the_next_request_of_a_kept_connection(plain: Rig) -> None:
    plain.configure(**NO_AUTH)
    with Origin(responds(*[counted(b"yes")] * 3)) as origin, connect(plain) as client:
        client.sendall(get(origin))
        assert read_response(client)[1] == b"yes"
        plain.configure(**AUTH)
        client.sendall(get(origin))
        assert read_response(client)[0].split()[1] == b"407"
        client.sendall(get(origin, "/", credentials("ada")))
        assert read_response(client)[1] == b"yes"


def test_and_of_a_client_of_socks_that_had_agreed_on_none() -> None:
    with Rig(protocol="socks5") as rig, Origin(echoes) as origin, arrive(rig) as sock, arrive(rig) as silent:
        sock.sendall(b"\x05\x01\x00")
        assert exactly(sock, 2) == b"\x05\x00"
        rig.configure(**AUTH)
        sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
        assert reply(sock)[0] == 2
        silent.sendall(b"\x05\x02\x00\x02")
        assert exactly(silent, 2) == b"\x05\x02"


def test_a_process_that_drains_keeps_no_connection_whatever_is_configured_then(plain: Rig) -> None:
    rig = Rig(timeout=50.0, params={"first_request_timeout": 20.0})
    with rig, Origin(responds(*[counted(b"yes")] * 2)) as origin, connect(rig) as client:
        client.sendall(get(origin))
        read_response(client)
        with connect(rig) as waiting:
            until(lambda: connections_of(rig).total == 2, "both are there")
            rig.stop(60.0)
            rig.configure(timeout=60.0)
            waiting.sendall(get(origin))
            assert b"onnection: close" in read_response(waiting)[0]


def tunnel(rig: Rig, origin: Origin, user: str = "ada") -> socket.socket:
    sock = connect(rig)
    sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{credentials(user)}\r\n\r\n".encode())
    assert sock.recv(1000).startswith(b"HTTP/1.1 200 ")
    return sock


@table(
    ("after", "reason"),
    [
        ({"auth_hash": OTHER_HASH}, "account_password_changed"),
        ({"auth_username": "bob"}, "account_removed"),
        ({"auth_username": None, "auth_hash": None, "accounts": (account("eve"),)}, "account_removed"),
    ],
)
def test_a_tunnel_ends_with_the_password_that_opened_it(plain: Rig, after: dict[str, Any], reason: str) -> None:
    plain.configure(**{**NO_AUTH, **AUTH})
    with Origin(echoes) as origin, tunnel(plain, origin) as sock:
        plain.configure(**after)
        assert is_cut(sock)
        assert plain.record(target_url=origin.authority)["reason"] == reason


def test_and_stays_with_another_setting_or_when_no_one_has_to_be_known(plain: Rig) -> None:
    plain.configure(**{**NO_AUTH, **AUTH})
    with Origin(echoes) as origin, tunnel(plain, origin) as sock:
        plain.configure(timeout=29.0, accounts=(account("eve"),))
        echo(sock, b"one")
        plain.configure(**NO_AUTH)
        echo(sock, b"two")
        plain.configure(**AUTH)
        echo(sock, b"three")
        plain.configure(**NO_AUTH)
        plain.configure(**AUTH, timeout=30.0)
        echo(sock, b"four")
        plain.configure(**NO_AUTH)
        plain.configure(**{**AUTH, "auth_hash": OTHER_HASH})
        assert is_cut(sock)


def test_an_account_whose_name_begins_as_a_tests_is_no_test(plain: Rig) -> None:
    plain.configure(**NO_AUTH)
    give(plain, account("test-ada"))
    with Origin(responds(*[counted(b"yes")] * 3)) as origin, connect(plain) as client:
        assert plain.ask(AllowTestClient("test-ada", "token", 60.0, "req_of_the_test")) == Done()
        client.sendall(get(origin, "/account", credentials("test-ada", WORD)))
        assert read_response(client)[1] == b"yes"
        client.sendall(get(origin, "/test", credentials("test-ada", "token")))
        assert read_response(client)[1] == b"yes"
        client.sendall(get(origin, "/again", credentials("test-ada", "token")))
        assert read_response(client)[0].split()[1] == b"407"
        ids = [
            plain.record(target_url=f"http://{origin.authority}{path}")["request_id"] for path in ("/account", "/test")
        ]
    assert ids[0] != "req_of_the_test"
    assert ids[1] == "req_of_the_test"


def test_a_test_that_was_refused_is_known_with_its_reason_and_one_that_went_well_with_none(plain: Rig) -> None:
    plain.configure(**NO_AUTH)
    for user, target, reason in (("test-1", "127.0.0.1:1", "connection_refused"), ("test-2", None, "")):
        assert plain.ask(AllowTestClient(user, "token", 60.0)) == Done()
        with Origin(responds(counted(b"yes"))) as origin, connect(plain) as client:
            fields = f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{credentials(user, 'token')}\r\n\r\n"
            client.sendall(fields.encode() if target else get(origin, "/", credentials(user, "token")))
            read_response(client)
        report = plain.ask(QueryTester(user))
        assert (report.parent, report.reason, bool(report.detail)) == (None, reason, bool(reason))
    assert plain.ask(QueryTester("unknown")) == ReportOfTest()


def test_many_testers_cost_the_oldest_and_each_comes_once() -> None:
    loop = Loop()
    testers = Testers(loop)
    for number in range(TESTERS_MAX + 1):
        testers.expect(f"test-{number}", "token", "", 60.0)
    assert testers.redeem("test-0", b"token") is None
    assert testers.redeem("test-2", b"other") is None
    assert testers.redeem("test-2", b"token") is not None
    assert testers.redeem("test-2", b"token") is None
    assert testers.redeem(f"test-{TESTERS_MAX}", b"token") is not None
    loop.close()
