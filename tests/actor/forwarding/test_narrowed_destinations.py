"""Destinations that an account, its plan or its credential no longer allows: what becomes of what is open."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from actors.accounts.records import InheritedRules
from actors.bus.messages.specs import AccessSpec, UpstreamsSpec
from tests.actor.forwarding.account_client import WORD, account, credentials, echo
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable, bearer, password_tunnel, tunnel
from tests.actor.forwarding.socks_client import LOOPBACK, address, datagram_socket, exactly, reply, responder, signed_in
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, echoes, responds
from tests.kit.upstreams import of_rig, upstream_list

DENIED, NOT_ALLOWED = "account_destination_denied", "account_destination_not_allowed"


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(auth_required=True) as rig:
        yield rig


@pytest.fixture
def table(rig: Rig, written: AccountsTable) -> AccountsTable:
    rig.configure(accounts=(), access=AccessSpec(), upstreams=UpstreamsSpec(), protocol="http")
    written.clear()
    rig.records.clear()
    return written


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(echoes) as origin:
        yield origin


@pytest.mark.parametrize(
    ("rules", "reason", "rule"),
    [
        ({"deny_destinations": ("127.0.0.1",)}, DENIED, "account.deny_destinations[0] 127.0.0.1"),
        ({"allow_destinations": ("*.example",)}, NOT_ALLOWED, "account.allow_destinations: no entry matches"),
    ],
)
def test_a_tunnel_ends_that_the_account_no_longer_allows(
    rig: Rig, table: AccountsTable, origin: Origin, rules: dict[str, Any], reason: str, rule: str
) -> None:
    ada, _bob = table.account("ada"), table.account("bob")
    _record, secret = table.mint(ada)
    with (
        password_tunnel(rig, origin, "ada") as one,
        tunnel(rig, origin, bearer(secret)) as other,
        password_tunnel(rig, origin, "bob") as free,
    ):
        table.change(ada, rules=InheritedRules(allow_destinations=("127.0.0.0/8",), deny_destinations=("*.example",)))
        echo(one, b"still allowed")
        table.change(ada, rules=InheritedRules(**rules))
        assert is_cut(one)
        assert is_cut(other)
        echo(free, b"is another account's")
    record = rig.record(reason=reason)
    assert (record["user"], record["status_code"], record["rule"]) == ("ada", 200, rule)


def test_a_plan_ends_the_tunnels_of_accounts_that_say_nothing_themselves(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    plan = table.plan("narrow")
    table.account("ada", plan=plan.id)
    table.account("bob", plan=plan.id, rules=InheritedRules(deny_destinations=()))
    with password_tunnel(rig, origin, "ada") as ada, password_tunnel(rig, origin, "bob") as bob:
        table.plan("narrow", deny_destinations=("127.0.0.0/8",))
        assert is_cut(ada)
        echo(bob, b"its own list stands against the plan's")
    assert rig.record(reason=DENIED)["user"] == "ada"


def test_a_credential_ends_its_own_tunnels(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    ada = table.account("ada")
    record, secret = table.mint(ada)
    with tunnel(rig, origin, bearer(secret)) as one, password_tunnel(rig, origin, "ada") as other:
        narrow = record._replace(allow_destinations=("*.example",))
        table.put(narrow)
        assert is_cut(one)
        echo(other, b"goes on")
    assert rig.record(reason="credential_destination_not_allowed")["credential"] == record.id


def test_a_name_is_judged_as_it_was_asked_for_and_rules_of_the_proxy_end_nothing(
    rig: Rig, table: AccountsTable
) -> None:
    ada = table.account("ada")
    with Origin(echoes) as origin, connect(rig) as sock:
        sock.sendall(f"CONNECT localhost:{origin.port} HTTP/1.1\r\nHost: x\r\n{credentials('ada')}\r\n\r\n".encode())
        assert b" 200 " in sock.recv(4096)
        rig.configure(access=AccessSpec(deny_destinations=("localhost",)))
        ada = table.change(ada, rules=InheritedRules(allow_destinations=("localhost",)))
        echo(sock, b"allowed by its name")
        table.change(ada, rules=InheritedRules(deny_destinations=("127.0.0.0/8", "::1")))
        assert is_cut(sock)
    assert rig.record(reason=DENIED)["user"] == "ada"


def test_an_account_of_the_proxy_itself_ends_its_tunnels_too(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    rig.configure(accounts=(account("own"),))
    with password_tunnel(rig, origin, "own") as sock:
        rig.configure(accounts=(account("own", deny_destinations=("127.0.0.1",)),))
        assert is_cut(sock)
    assert rig.record(reason=DENIED)["user"] == "own"


def test_a_tunnel_through_an_upstream_is_judged_by_what_was_asked_for(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada = table.account("ada")
    with Rig(id="upstream") as upstream:
        rig.configure(upstreams=upstream_list(of_rig(upstream)))
        with password_tunnel(rig, origin, "ada") as sock:
            ada = table.change(ada, rules=InheritedRules(deny_destinations=(f"127.0.0.1:{upstream.port}",)))
            echo(sock, b"the upstream is no target")
            table.change(ada, rules=InheritedRules(deny_destinations=(f"127.0.0.1:{origin.port}",)))
            assert is_cut(sock)
        rig.configure(upstreams=UpstreamsSpec())


def _connected(rig: Rig, origin: Origin) -> socket.socket:
    sock = signed_in(rig, "ada", WORD)
    sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
    assert reply(sock)[0] == 0
    return sock


def _by_name(rig: Rig, origin: Origin) -> socket.socket:
    sock = connect(rig)
    sock.sendall(b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + b"ada\0")
    assert exactly(sock, 8)[1] == 90
    return sock


@pytest.mark.parametrize(("protocol", "opened"), [("socks5", _connected), ("socks4", _by_name)])
def test_tunnels_of_socks_end(
    rig: Rig, table: AccountsTable, origin: Origin, protocol: str, opened: Callable[[Rig, Origin], socket.socket]
) -> None:
    ada = table.account("ada", socks4_by_name=True)
    rig.configure(protocol=protocol)
    with opened(rig, origin) as sock:
        echo(sock, b"open")
        table.change(ada, rules=InheritedRules(deny_destinations=("127.0.0.1",)))
        assert is_cut(sock)
    assert rig.record(reason=DENIED)["user"] == "ada"


def test_an_association_ends_when_one_of_its_peers_is_no_longer_allowed(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("ada")
    rig.configure(protocol="socks5")
    with responder() as first, responder() as second, signed_in(rig, "ada", WORD) as sock, datagram_socket() as own:
        sock.sendall(b"\x05\x03\x00" + address(b"\0\0\0\0", 0))
        _code, relay = reply(sock)
        ada = table.change(ada, rules=InheritedRules(deny_destinations=("127.0.0.1:9",)))
        for port in (first, second):
            own.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"yes", relay)
            assert own.recv(100)[-3:] == b"YES"
        table.change(ada, rules=InheritedRules(deny_destinations=(f"127.0.0.1:{second}",)))
        assert is_cut(sock)
        record = rig.record(target_url=f"127.0.0.1:{second}", method="UDP")
        assert (record["reason"], record["rule"]) == (DENIED, f"account.deny_destinations[0] 127.0.0.1:{second}")


def test_plain_http_is_judged_with_the_next_request(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("ada")
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(rig) as sock:
        request = get(origin, "/", credentials("ada"))
        sock.sendall(request)
        assert b" 200 " in read_response(sock)[0]
        table.change(ada, rules=InheritedRules(deny_destinations=("127.0.0.1",)))
        sock.sendall(request)
        assert f"rule={DENIED}".encode() in read_response(sock)[0]


def test_a_name_that_is_no_longer_enough_ends_what_it_alone_let_in(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    ada = table.account("ada", socks4_by_name=True)
    _record, secret = table.mint(ada)
    rig.configure(protocol="socks4", accounts=(account("own", password_hash=None),))
    with connect(rig) as by_secret, _by_name(rig, origin) as by_name, connect(rig) as own:
        for sock, user in ((by_secret, secret), (own, "own")):
            sock.sendall(b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + user.encode() + b"\0")
            assert exactly(sock, 8)[1] == 90
        ada = table.change(ada, tags=("changed",))
        echo(by_name, b"goes on")
        table.change(ada, socks4_by_name=False)
        assert is_cut(by_name)
        echo(by_secret, b"has a credential")
        echo(own, b"is an account of the proxy itself")
    assert rig.record(reason="account_name_not_enough")["user"] == "ada"
