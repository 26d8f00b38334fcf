"""Accounts and limits of a real actor: which clients are admitted, why others are refused, which connections end."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from actors.bus.messages.forwarding import Explain
from actors.bus.messages.specs import AccountSpec, LimitsSpec
from config.model.choices import period_at
from tests.actor.forwarding.account_client import (
    OTHER_HASH,
    WORD,
    account,
    ask,
    credentials,
    echo,
    give,
    states,
)
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, address, exactly, reply
from tests.actor.forwarding.tls_client import connect as connect_tls
from tests.kit.certificates import make_pair
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_all, read_head_alone, responds


def once(rig: Rig, origin: Origin, user: str = "ada", word: str = WORD) -> tuple[int, bytes]:
    with connect(rig) as client:
        return ask(client, origin, user, word)


def tunnel(rig: Rig, origin: Origin, user: str = "ada") -> socket.socket:
    sock = connect(rig)
    sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{credentials(user)}\r\n\r\n".encode())
    head = read_head_alone(sock)
    assert head.startswith(b"HTTP/1.1 200 "), head
    return sock


# --- who is let in ---


def test_each_account_has_its_own_password_and_is_named_in_the_records(rig: Rig) -> None:
    give(rig, account("ada"), account("bob", password_hash=OTHER_HASH))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert once(rig, origin)[0] == 200
        assert once(rig, origin, "bob", "other-word")[0] == 200
        assert once(rig, origin, "bob", WORD)[0] == 407
        assert once(rig, origin, "eve", WORD)[0] == 407
        with connect(rig) as anonymous:
            anonymous.sendall(get(origin))
            assert b" 407 " in read_response(anonymous)[0]
    assert rig.record(user="bob")["status_code"] == 200


def test_where_credentials_are_wanted_and_no_one_has_any_no_one_gets_in(rig: Rig) -> None:
    give(rig)
    with Origin(responds(counted(b"yes"))) as origin:
        assert once(rig, origin)[0] == 407


def test_the_user_of_auth_is_good_beside_the_accounts(rig: Rig) -> None:
    give(rig, account("ada"), auth_username="root", auth_hash=OTHER_HASH)
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert once(rig, origin, "root", "other-word")[0] == 200
        assert once(rig, origin)[0] == 200
    rig.configure(auth_username=None, auth_hash=None)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"enabled": False}, b"account_disabled"),
        ({"expires_at": 1.0}, b"account_expired"),
        ({"allow_clients": ("192.0.2.0/24", "2001:db8::/32")}, b"account_network_not_allowed"),
    ],
)
def test_a_right_password_of_an_account_that_may_not_is_given_the_reason_and_a_wrong_one_is_not(
    rig: Rig, fields: dict[str, Any], word: bytes
) -> None:
    give(rig, account("ada", **fields))
    with Origin(responds(counted(b"yes"))) as origin:
        status, head = once(rig, origin)
        assert (status, b"rule=" + word in head) == (403, True)
        assert once(rig, origin, word="wrong-word")[0] == 407
        assert origin.connections == 0
    assert rig.record(reason=word.decode())["user"] == "ada"
    explanation = rig.ask(Explain("127.0.0.1", "ada", "127.0.0.1:80"))
    assert (explanation.decision, explanation.stage, explanation.reason) == ("deny", "account", word.decode())
    until(lambda: rig.counters is not None and word.decode() in rig.counters.refusals, "the refusal is counted")


def test_an_allowed_network_lets_in(rig: Rig) -> None:
    give(rig, account("ada", allow_clients=("192.0.2.0/24", "127.0.0.0/8")))
    with Origin(responds(counted(b"yes"))) as origin:
        assert once(rig, origin)[0] == 200


# --- connections and requests ---


def test_one_connection_too_many_of_a_client_is_informed_and_another_client_is_not(rig: Rig) -> None:
    rig.configure(limits=LimitsSpec(connections=2))
    with Origin(echoes) as origin, ExitStack() as stack:
        for _ in range(2):
            sock = stack.enter_context(connect(rig))
            sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            assert b" 200 " in read_head_alone(sock)
        with connect(rig) as third:
            head = read_all(third)
            assert head.startswith(b"HTTP/1.1 429 ")
            assert b"error=connection_limit_reached" in head
            assert b"rule=client_connection_limit" in head
        elsewhere = socket.create_connection(("127.0.0.1", rig.port), 20, ("127.0.0.2", 0))
        with elsewhere, Origin(responds(counted(b"yes"))) as other:
            elsewhere.sendall(get(other))
            assert b" 200 " in read_response(elsewhere)[0]
    assert rig.record(reason="client_connection_limit")["status_code"] == 429

    def again() -> bool:
        with connect(rig) as client, Origin(responds(counted(b"yes"))) as other:
            client.sendall(get(other))
            return b" 200 " in read_response(client)[0]

    until(again, "the places are free again")


def test_connections_that_were_there_before_the_limit_count(rig: Rig) -> None:
    with connect(rig), connect(rig) as second, Origin(responds(counted(b"yes"))) as origin:
        second.sendall(get(origin))
        read_response(second)
        rig.configure(limits=LimitsSpec(connections=2))
        with connect(rig) as third:
            assert read_all(third).startswith(b"HTTP/1.1 429 ")


def test_requests_of_a_client_above_the_minute_are_given_the_time_to_come_again(rig: Rig) -> None:
    rig.configure(limits=LimitsSpec(requests_per_minute=3))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(rig) as client:
        for expected in (200, 200, 200, 429, 429):
            client.sendall(get(origin))
            head, _ = read_response(client)
            assert int(head.split()[1]) == expected
        assert b"rule=client_request_limit" in head
        [wait] = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Retry-After")]
        assert 1 <= wait <= 120
    assert rig.record(reason="client_request_limit")["status_code"] == 429


def test_limits_of_an_account_are_its_own(rig: Rig) -> None:
    give(rig, account("ada", limits=LimitsSpec(requests_per_minute=2)), account("bob"))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert [once(rig, origin)[0] for _ in range(3)] == [200, 200, 429]
        assert once(rig, origin, "bob")[0] == 200
    assert rig.record(reason="account_request_limit")["user"] == "ada"


def test_connections_of_an_account_are_counted_where_it_is_used(rig: Rig) -> None:
    give(rig, account("ada", limits=LimitsSpec(connections=1)), account("bob"))
    with Origin(echoes) as origin, Origin(responds(*[counted(b"yes")] * 9)) as other:
        with tunnel(rig, origin):
            status, head = once(rig, other)
            assert (status, b"rule=account_connection_limit" in head) == (429, True)
            assert once(rig, other, "bob")[0] == 200
            assert states(rig)["acc_ada"].connections == 1
        until(lambda: states(rig)["acc_ada"].connections == 0, "the tunnel is over")
        assert once(rig, other)[0] == 200


# --- quotas ---


def test_a_quota_that_is_reached_ends_the_accounts_connections_and_no_others(rig: Rig) -> None:
    give(rig, account("ada", quota=100_000), account("bob"))
    with ExitStack() as stack:
        origin, other = (stack.enter_context(Origin(each)) for each in (echoes, responds(*[counted(b"yes")] * 9)))
        idle, busy = (stack.enter_context(tunnel(rig, origin)) for _ in range(2))
        stranger = stack.enter_context(tunnel(rig, origin, "bob"))
        echo(busy, b"x" * 60_000)
        assert is_cut(idle)
        assert is_cut(busy)
        echo(stranger, b"x" * 200_000)
        status, head = once(rig, other)
        assert (status, b"rule=account_quota_reached" in head) == (429, True)
        assert b"Retry-After" not in head
        assert once(rig, other, "bob")[0] == 200
    assert rig.record(reason="account_quota_reached", method="CONNECT")["user"] == "ada"
    used = states(rig)["acc_ada"].usage
    assert 120_000 <= used.bytes_in + used.bytes_out <= 125_000
    give(rig, account("ada", quota=200_000), account("bob"))
    with Origin(responds(counted(b"yes"))) as other:
        assert once(rig, other)[0] == 200


def test_a_long_answer_does_not_run_far_beyond_the_quota(rig: Rig) -> None:
    give(rig, account("ada", quota=1_000_000))
    with Origin(responds(counted(b"x" * 20_000_000))) as origin, connect(rig) as client:
        client.sendall(get(origin, "/", credentials("ada")))
        received = 0
        try:
            while part := client.recv(1 << 20):
                received += len(part)
        except ConnectionResetError:
            assert received < 1_500_000
    used = states(rig)["acc_ada"].usage
    assert 1_000_000 <= used.bytes_in + used.bytes_out <= 1_300_000
    assert rig.record(reason="account_quota_reached", method="GET", status_code=200)["user"] == "ada"


def test_a_daily_quota_tells_when_the_next_day_begins(rig: Rig) -> None:
    give(rig, account("ada", quota=1, period="day"))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert once(rig, origin)[0] == 200
        head = once(rig, origin)[1]
        [wait] = [int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.startswith(b"Retry-After")]
        until_midnight = (period_at("day", time.time())[1] or 0.0) - time.time()
        assert abs(wait - until_midnight) < 60 or until_midnight > 86_000


def test_every_byte_of_an_exchange_is_on_the_account_with_the_head_that_named_it(rig: Rig) -> None:
    give(rig, account("ada"))
    with Origin(responds(*[counted(b"x" * 1000)] * 3)) as origin, connect(rig) as client:
        sent = received = 0
        for _ in range(3):
            request = get(origin, "/", credentials("ada"))
            client.sendall(request)
            head, body = read_response(client)
            sent, received = sent + len(request), received + len(head) + 4 + len(body)
        usage = states(rig)["acc_ada"].usage
    assert (usage.bytes_in, usage.bytes_out) == (sent, received)


# --- changes ---


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        ((), "account_removed"),
        ((account("ada", enabled=False),), "account_disabled"),
        ((account("ada", expires_at=5.0),), "account_expired"),
        ((account("ada", password_hash=OTHER_HASH),), "account_password_changed"),
        ((account("ada", allow_clients=("192.0.2.1/32",)),), "account_network_not_allowed"),
        ((account("ada", quota=1),), "account_quota_reached"),
    ],
)
def test_a_change_ends_the_connections_of_its_account_alone(
    rig: Rig, after: tuple[AccountSpec, ...], reason: str
) -> None:
    give(rig, account("ada"), account("bob"))
    with Origin(echoes) as origin, tunnel(rig, origin) as hers, tunnel(rig, origin, "bob") as his:
        echo(hers, b"hello")
        give(rig, *after, account("bob", limits=LimitsSpec(connections=7)))
        assert is_cut(hers)
        echo(his, b"still here")
    assert rig.record(reason=reason)["user"] == "ada"


def test_an_account_expires_with_its_connections(rig: Rig) -> None:
    give(rig, account("ada", expires_at=time.time() + 3))
    with Origin(echoes) as origin, tunnel(rig, origin) as sock:
        echo(sock, b"hello")
        assert is_cut(sock)
    assert rig.record(reason="account_expired")["method"] == "CONNECT"


def test_a_changed_password_is_forgotten_though_it_was_remembered(rig: Rig) -> None:
    give(rig, account("ada"), account("bob"))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert once(rig, origin)[0] == 200
        give(rig, account("ada", password_hash=OTHER_HASH), account("bob"))
        assert once(rig, origin)[0] == 407
        assert once(rig, origin, word="other-word")[0] == 200


# --- bandwidth ---


def test_bulk_down_and_up_keeps_to_the_rate_and_is_delivered_whole(rig: Rig) -> None:
    rate = 1_000_000
    give(rig, account("ada", limits=LimitsSpec(bandwidth_in=rate, bandwidth_out=rate)))
    body = bytes(range(256)) * 4000
    with Origin(echoes) as origin, Origin(responds(counted(body))) as other, connect(rig) as client:
        began = time.monotonic()
        client.sendall(get(other, "/", credentials("ada")))
        assert read_response(client)[1] == body
        assert time.monotonic() - began > 0.8 * len(body) / rate
        with tunnel(rig, origin) as sock:
            sock.sendall(b"x")
            assert exactly(sock, 1) == b"x"
            began = time.monotonic()
            sock.settimeout(20)
            sock.sendall(body[:500_000])
            sock.shutdown(socket.SHUT_WR)
            assert read_all(sock) == body[:500_000]
            assert time.monotonic() - began > 0.3


def test_a_slow_limit_is_no_idleness(rig: Rig) -> None:
    slow = LimitsSpec(bandwidth_out=4000)
    give(rig, account("ada", limits=slow), account("bob", limits=slow), timeout=1.0)
    body = b"x" * 6000
    with Origin(responds(counted(body))) as origin, connect(rig) as client, tunnel(rig, origin, "bob") as other:
        other.sendall(get(origin))
        client.sendall(get(origin, "/", credentials("ada")))
        assert read_response(client)[1] == body
        assert read_response(other)[1] == body


# --- SOCKS ---


def log_in(rig: Rig, user: bytes = b"ada", word: bytes = WORD.encode()) -> tuple[socket.socket, bytes]:
    sock = connect(rig)
    sock.sendall(b"\x05\x01\x02")
    assert exactly(sock, 2) == b"\x05\x02"
    sock.sendall(bytes((1, len(user))) + user + bytes((len(word),)) + word)
    return sock, exactly(sock, 2)


def test_socks5_tells_a_rule_to_who_is_known_and_may_not(five: Rig) -> None:
    give(five, account("ada", enabled=False), account("bob", quota=300))
    with Origin(echoes) as origin:
        sock, status = log_in(five)
        with sock:
            assert status == b"\x01\x00"
            sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
            assert reply(sock)[0] == 2
        sock, status = log_in(five, word=b"wrong-word")
        with sock:
            assert status == b"\x01\x01"
        sock, _ = log_in(five, b"bob")
        with sock:
            sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
            assert reply(sock)[0] == 0
            echo(sock, b"x" * 200)
            assert is_cut(sock)
    record = five.record(reason="account_disabled")
    assert (record["status_code"], record["user"]) == (403, "ada")
    assert five.record(reason="account_quota_reached")["user"] == "bob"


def test_socks5_lets_one_client_too_many_in_to_hear_it_and_the_next_not_at_all(five: Rig) -> None:
    five.configure(accounts=(), auth_required=False, limits=LimitsSpec(connections=1))
    with Origin(echoes) as origin, connect(five) as first, connect(five) as second:
        for sock, expected in ((first, 0), (second, 2)):
            sock.sendall(b"\x05\x01\x00")
            assert exactly(sock, 2) == b"\x05\x00"
            if sock is second:
                with connect(five) as third:
                    assert read_all(third) == b"\x05\xff"
            sock.sendall(b"\x05\x01\x00" + address(LOOPBACK, origin.port))
            assert reply(sock)[0] == expected
    five.configure(limits=LimitsSpec())


def test_datagrams_count_on_the_account_and_end_with_its_quota(five: Rig) -> None:
    give(five, account("ada", quota=2_000))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
    ):
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20)
        sock, _ = log_in(five)
        with sock:
            sock.sendall(b"\x05\x03\x00" + address(b"\0\0\0\0", 0))
            code, relay = reply(sock)
            assert code == 0
            for _ in range(3):
                own.sendto(b"\0\0\0" + address(LOOPBACK, peer.getsockname()[1]) + b"x" * 800, relay)
                assert peer.recv(2000) == b"x" * 800
            assert is_cut(sock)
    assert five.record(reason="account_quota_reached", method="UDP")["user"] == "ada"


def test_datagrams_above_the_rate_wait_and_are_delivered_later(five: Rig) -> None:
    give(five, account("ada", limits=LimitsSpec(bandwidth_in=20_000)))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own,
    ):
        peer.bind(("127.0.0.1", 0))
        peer.settimeout(20)
        sock, _ = log_in(five)
        with sock:
            sock.sendall(b"\x05\x03\x00" + address(b"\0\0\0\0", 0))
            _, relay = reply(sock)
            began = time.monotonic()
            for _ in range(12):
                own.sendto(b"\0\0\0" + address(LOOPBACK, peer.getsockname()[1]) + b"x" * 1000, relay)
            for _ in range(12):
                assert len(peer.recv(2000)) == 1000
            assert time.monotonic() - began > 0.35


def test_socks4_accounts_are_user_names() -> None:
    with Rig(protocol="socks4") as four, Origin(echoes) as origin:
        give(four, account("ada", password_hash=None), account("bob", password_hash=None, enabled=False))
        for user, code in ((b"ada", 90), (b"bob", 91), (b"eve", 91)):
            with connect(four) as sock:
                sock.sendall(b"\x04\x01" + origin.port.to_bytes(2, "big") + LOOPBACK + user + b"\0")
                assert exactly(sock, 2)[1] == code
        assert four.record(user="bob")["reason"] == "account_disabled"


def test_a_connection_from_before_the_first_account_is_judged_at_its_next_request(rig: Rig) -> None:
    rig.configure(auth_username="root", auth_hash=OTHER_HASH)
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(rig) as client:
        assert ask(client, origin, "root", "other-word")[0] == 200
        give(rig, account("ada", enabled=False), account("bob", limits=LimitsSpec(requests_per_minute=1)))
        assert ask(client, origin)[0] == 403
        assert [ask(client, origin, "bob")[0] for _ in range(2)] == [200, 429]
        assert ask(client, origin, "root", "other-word")[0] == 200
    rig.configure(auth_username=None, auth_hash=None)


def test_turning_auth_off_ends_no_one_and_what_was_used_is_not_forgotten(rig: Rig) -> None:
    give(rig, account("ada"))
    with Origin(echoes) as origin, tunnel(rig, origin) as sock:
        echo(sock, b"x" * 5_000)
        rig.configure(accounts=(), auth_required=False)
        echo(sock, b"x" * 5_000)
        give(rig, account("ada"))
        echo(sock, b"x" * 5_000)
        assert states(rig)["acc_ada"].usage.bytes_out >= 15_000


def test_a_new_rate_holds_for_what_flows_already(rig: Rig) -> None:
    give(rig, account("ada", limits=LimitsSpec(bandwidth_out=20_000)))
    body = b"x" * 3_000_000
    with Origin(responds(counted(body))) as origin, connect(rig) as client:
        client.sendall(get(origin, "/", credentials("ada")))
        assert client.recv(1000)
        began = time.monotonic()
        give(rig, account("ada"))
        left = len(body) - 1000
        while left > 0:
            part = client.recv(1 << 20)
            assert part
            left -= len(part)
        assert time.monotonic() - began < 60


# --- TLS ---


def test_https_keeps_to_the_rate_both_ways_and_tells_a_client_too_many_within_tls(tmp_path: Path) -> None:
    pair, rate = make_pair(tmp_path), 400_000
    body = bytes(range(256)) * 1000
    with ExitStack() as stack:
        rig = stack.enter_context(Rig(protocol="https", tls=pair))
        give(rig, account("ada", limits=LimitsSpec(bandwidth_in=rate, bandwidth_out=rate)))
        origin, other = (stack.enter_context(Origin(each)) for each in (echoes, responds(counted(body))))
        began = time.monotonic()
        client = stack.enter_context(connect_tls(rig, pair[0]))
        client.sendall(get(other, "/", credentials("ada")))
        assert read_response(client)[1] == body
        assert time.monotonic() - began > 0.7 * len(body) / rate
        client.close()
        sock = stack.enter_context(connect_tls(rig, pair[0]))
        sock.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\n{credentials('ada')}\r\n\r\n".encode())
        assert read_head_alone(sock).startswith(b"HTTP/1.1 200 ")
        began = time.monotonic()
        sock.sendall(body)
        assert exactly(sock, len(body)) == body
        assert time.monotonic() - began > 0.7 * len(body) / rate
        rig.configure(accounts=(), auth_required=False, limits=LimitsSpec(connections=1))
        too_many = stack.enter_context(connect_tls(rig, pair[0]))
        too_many.sendall(get(other))
        head, _ = read_response(too_many)
        assert (head.split()[1], b"rule=client_connection_limit" in head) == (b"429", True)
