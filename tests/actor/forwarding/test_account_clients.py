"""`limits.clients`: how many client addresses use an account at a time, at two proxies of one machine."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator

import pytest

from actors.accounts.records import InheritedRules
from actors.bus.messages.forwarding import Explain
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from actors.state.account_clients import open_clients
from tests.actor.forwarding.account_client import WORD, account, credentials, echo
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import get, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable, bearer
from tests.actor.forwarding.socks_client import LOOPBACK, address, exactly, reply
from tests.kit.forked_actor import Forked
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_head_alone, responds

ONE, TWO, THREE = "127.0.0.11", "127.0.0.12", "127.0.0.13"
RETRY = re.compile(rb"(?<=Retry-After: )\d+")


class Beside(Rig):
    """A proxy of the same machine as another one."""

    def __init__(self, other: Rig, **changes: object) -> None:
        self._other = other
        super().__init__(**changes)  # type: ignore[arg-type]

    def _spawn(self) -> Forked:
        open_clients(self._other.run_dir.clients)
        os.symlink(self._other.run_dir.clients, self.run_dir.clients)
        return super()._spawn()


@pytest.fixture(scope="module")
def started() -> Iterator[tuple[Rig, Rig]]:
    with Rig(auth_required=True) as http, Beside(http, auth_required=True, protocol="mixed") as mixed:
        yield http, mixed


@pytest.fixture
def pair(started: tuple[Rig, Rig]) -> tuple[Rig, Rig]:
    for rig in started:
        rig.configure(accounts=(), accept_proxy_protocol=False)
        rig.records.clear()
    return started


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(responds(*[counted(b"yes")] * 999)) as origin:
        yield origin


_names = iter(f"ada{number}" for number in range(1000))


def give(pair: tuple[Rig, Rig], clients: int, window: int = 600, name: str | None = None, **fields: object) -> str:
    """An account for both proxies with this limit, new unless it is named; its name."""
    user = name or next(_names)
    given: AccountSpec = account(user, limits=LimitsSpec(clients=clients, clients_window=window), **fields)
    for rig in pair:
        rig.configure(accounts=(given,))
    return user


def arrive(rig: Rig, client: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", rig.port), 60, (client, 0))
    sock.settimeout(20)
    return sock


def ask(rig: Rig, origin: Origin, client: str, user: str, *fields: str) -> tuple[int, bytes]:
    """Status and head of a response to a client at this address."""
    with arrive(rig, client) as sock:
        sock.sendall(get(origin, "/", credentials(user), *fields))
        head, _body = read_response(sock)
        return int(head.split()[1]), head


def statuses(rig: Rig, origin: Origin, user: str, *clients: str) -> list[int]:
    return [ask(rig, origin, each, user)[0] for each in clients]


def tunnel(rig: Rig, origin: Origin, client: str, user: str) -> socket.socket:
    sock = arrive(rig, client)
    sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{credentials(user)}\r\n\r\n".encode())
    assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
    return sock


def socks5(rig: Rig, client: str, user: str, request: bytes) -> tuple[socket.socket, int, tuple[str, int]]:
    """The reply to a SOCKS5 request of a client at this address, whose credentials are accepted."""
    sock = arrive(rig, client)
    name, word = user.encode(), WORD.encode()
    sock.sendall(b"\x05\x01\x02" + bytes((1, len(name))) + name + bytes((len(word),)) + word)
    assert exactly(sock, 4) == b"\x05\x02\x01\x00"
    sock.sendall(request)
    return sock, *reply(sock)


def test_one_address_more_is_429_at_every_proxy_and_the_others_go_on(pair: tuple[Rig, Rig], origin: Origin) -> None:
    first, second = pair
    user = give(pair, 2)
    assert [ask(first, origin, ONE, user)[0], ask(second, origin, TWO, user)[0]] == [200, 200]
    status, head = ask(first, origin, THREE, user, "Accept: application/json")
    assert (status, b"rule=account_client_limit" in head) == (429, True)
    assert b"Content-Type: application/problem+json" in head
    found = RETRY.search(head)
    assert found is not None
    assert 500 < int(found[0]) <= 600
    assert statuses(second, origin, user, THREE, ONE, TWO) == [429, 200, 200]
    record = first.record(reason="account_client_limit")
    assert (record["user"], record["client_ip"], record["status_code"]) == (user, THREE, 429)
    until(lambda: first.counters and first.counters.refusals.get("account_client_limit"), "the refusal is counted")


def test_socks_and_http_count_alike(pair: tuple[Rig, Rig]) -> None:
    first, second = pair
    user = give(pair, 1)
    with Origin(echoes) as origin:
        to = b"\x05\x01\x00" + address(LOOPBACK, origin.port)
        allowed, code, _bound = socks5(second, ONE, user, to)
        refused, other_code, _bound = socks5(second, TWO, user, to)
        with allowed, refused:
            assert (code, other_code) == (0, 2)
            echo(allowed, b"hello")
    with Origin(responds(counted(b"yes"))) as origin:
        assert statuses(first, origin, user, TWO, ONE) == [429, 200]
    assert second.record(reason="account_client_limit")["client_ip"] == TWO


def test_datagrams_are_refused_and_count_as_well(pair: tuple[Rig, Rig], origin: Origin) -> None:
    first, second = pair
    user = give(pair, 1)
    associate = b"\x05\x03\x00" + address(b"\0\0\0\0", 0)
    allowed, code, _relay = socks5(second, ONE, user, associate)
    refused, other_code, _relay = socks5(second, TWO, user, associate)
    with allowed, refused:
        assert (code, other_code) == (0, 2)
        assert statuses(first, origin, user, TWO) == [429]


def test_one_that_is_silent_for_the_window_makes_room_and_refused_tries_prolong_nothing(
    pair: tuple[Rig, Rig], origin: Origin
) -> None:
    user = give(pair, 1, window=1)
    assert statuses(pair[0], origin, user, ONE) == [200]
    until(lambda: statuses(pair[1], origin, user, TWO) == [200], "the place is free, though it is tried all the time")
    assert statuses(pair[0], origin, user, ONE) == [429]


def test_a_connection_that_has_lost_its_place_is_refused_or_ends(pair: tuple[Rig, Rig], origin: Origin) -> None:
    first, second = pair
    user = give(pair, 1, window=1)
    with Origin(echoes) as far, arrive(first, ONE) as kept, tunnel(first, far, ONE, user) as sock:
        kept.sendall(get(origin, "/", credentials(user)))
        assert read_response(kept)[0].startswith(b"HTTP/1.1 200 ")
        echo(sock, b"hello")
        until(lambda: statuses(second, origin, user, TWO) == [200], "it has been silent")
        kept.sendall(get(origin, "/", credentials(user)))
        assert read_response(kept)[0].startswith(b"HTTP/1.1 429 ")
        sock.sendall(b"hello")
        assert is_cut(sock)
    assert first.record(reason="account_client_limit", method="CONNECT")["client_ip"] == ONE


def test_a_new_limit_counts_the_connections_that_are_open_and_ends_none(pair: tuple[Rig, Rig], origin: Origin) -> None:
    first, second = pair
    user = give(pair, 0)
    with Origin(echoes) as far, tunnel(first, far, ONE, user) as sock, tunnel(first, far, TWO, user) as other:
        give(pair, 1, name=user)
        assert statuses(second, origin, user, THREE, ONE, TWO) == [429, 200, 200]
        echo(sock, b"hello")
        echo(other, b"hello")


def test_what_other_limits_refuse_is_no_use(pair: tuple[Rig, Rig], origin: Origin) -> None:
    limits = LimitsSpec(clients=1, requests_per_minute=1)
    user = next(_names)
    pair[0].configure(accounts=(account(user, limits=limits),))
    assert statuses(pair[0], origin, user, ONE, ONE) == [200, 429]
    assert pair[0].record(reason="account_request_limit")["client_ip"] == ONE
    assert statuses(pair[0], origin, user, TWO) == [429]
    assert pair[0].record(reason="account_client_limit")["client_ip"] == TWO


def test_explain_says_who_would_be_refused_and_counts_nothing(pair: tuple[Rig, Rig], origin: Origin) -> None:
    first, second = pair
    user = give(pair, 1)
    for _ in range(2):
        for client in (ONE, TWO):
            assert first.ask(Explain(client, user, origin.authority)).decision == "allow"
    assert statuses(second, origin, user, ONE) == [200]
    said = first.ask(Explain(TWO, user, origin.authority))
    assert (said.decision, said.reason, said.stage) == ("deny", "account_client_limit", "account")
    assert first.ask(Explain(ONE, user, origin.authority)).decision == "allow"


def test_behind_a_balancer_the_address_is_that_of_its_header(pair: tuple[Rig, Rig], origin: Origin) -> None:
    first, _second = pair
    user = give(pair, 1)
    first.configure(accept_proxy_protocol=True)
    found = []
    for client in ("2001:db8::1", "2001:db8::2", "2001:db8:0:1::1"):
        with arrive(first, ONE) as sock:
            sock.sendall(f"PROXY TCP6 {client} 2001:db8::9 1 2\r\n".encode() + get(origin, "/", credentials(user)))
            found.append(int(read_response(sock)[0].split()[1]))
    assert found == [200, 200, 429]


def test_limits_of_a_plan_and_of_a_credential_hold(origin: Origin) -> None:
    with Rig(auth_required=True) as rig:
        table = AccountsTable(rig)
        plan = table.plan("home", clients=2, clients_window=300)
        ada = table.account("ada", plan=plan.id)
        table.account("bob", plan=plan.id, rules=InheritedRules(clients=0))
        credential, secret = table.mint(ada, clients=1)

        def by_secret(client: str) -> int:
            with arrive(rig, client) as sock:
                sock.sendall(get(origin, "/", bearer(secret)))
                return int(read_response(sock)[0].split()[1])

        assert [by_secret(ONE), by_secret(TWO)] == [200, 429]
        assert rig.record(reason="account_client_limit")["credential"] == credential.id
        assert statuses(rig, origin, "ada", TWO, THREE) == [200, 429]
        assert statuses(rig, origin, "bob", ONE, TWO, THREE) == [200, 200, 200]
        said = rig.ask(Explain(TWO, None, origin.authority, credential=credential.id))
        assert (said.reason, said.stage) == ("account_client_limit", "credential")
        table.close()


def test_where_nothing_is_limited_nothing_is_opened(origin: Origin) -> None:
    with Rig(auth_required=True) as rig:
        rig.configure(accounts=(account("ada"),))
        assert statuses(rig, origin, "ada", ONE, TWO) == [200, 200]
        assert not rig.run_dir.clients.exists()
        rig.configure(accounts=(account("ada", limits=LimitsSpec(clients=1)),))
        assert statuses(rig, origin, "ada", ONE, TWO) == [200, 429]
        assert rig.run_dir.clients.exists()


def test_a_file_that_can_not_be_made_is_a_problem_and_refuses_no_client(origin: Origin) -> None:
    with Rig(auth_required=True) as rig:
        rig.run_dir.clients.mkdir()
        rig.configure(accounts=(account("ada", limits=LimitsSpec(clients=1)),))
        assert statuses(rig, origin, "ada", ONE, TWO) == [200, 200]
        until(lambda: ("workers", "") in rig.problems, "the problem is reported")
