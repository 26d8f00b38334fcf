"""Destinations and schedules of accounts, plans and credentials."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from actors.accounts.records import DAY, InheritedRules, ScheduleData
from actors.bus.messages.specs import AccessSpec, LimitsSpec, UpstreamsSpec
from tests.actor.forwarding.account_client import WORD, credentials, echo
from tests.actor.forwarding.connection_pages import is_cut
from tests.actor.forwarding.http_client import connect, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable, bearer, fetch, password_tunnel, tunnel
from tests.actor.forwarding.socks_client import LOOPBACK, address, datagram_socket, exactly, reply, responder
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, responds
from tests.kit.upstreams import of_rig, upstream_list


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig(auth_required=True) as rig:
        yield rig


@pytest.fixture
def table(rig: Rig, written: AccountsTable) -> AccountsTable:
    rig.configure(accounts=(), access=AccessSpec(), upstreams=UpstreamsSpec(), protocol="http", limits=LimitsSpec())
    written.clear()
    rig.records.clear()
    return written


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin(responds(*[counted(b"yes")] * 99)) as origin:
        yield origin


def refused(rig: Rig, origin: Origin, field: str) -> str:
    """The rule that refuses a request; empty when it is served."""
    status, head = fetch(rig, origin, field)
    return "" if status == 200 else head.split(b"rule=")[1].split()[0].decode()


# --- destinations ---


def test_the_destinations_of_an_account_hold_beside_those_of_the_proxy(
    rig: Rig, table: AccountsTable, origin: Origin
) -> None:
    table.account("denies", rules=InheritedRules(deny_destinations=("127.0.0.0/8", "a.example")))
    table.account("allows", rules=InheritedRules(allow_destinations=("127.0.0.0/8",)))
    table.account("other", rules=InheritedRules(allow_destinations=("*.example",)))
    words = [refused(rig, origin, credentials(name)) for name in ("denies", "allows", "other")]
    assert words == ["account_destination_denied", "", "account_destination_not_allowed"]
    record = rig.record(reason="account_destination_denied")
    assert (record["user"], record["rule"]) == ("denies", "account.deny_destinations[0] 127.0.0.0/8")
    rig.configure(access=AccessSpec(deny_destinations=("127.0.0.1",), mode="report"))
    assert refused(rig, origin, credentials("denies")) == "account_destination_denied"  # the mode is the proxy's
    rig.configure(access=AccessSpec(deny_destinations=("127.0.0.1",)))
    assert refused(rig, origin, credentials("allows")) == "destination_denied"


def test_account_and_credential_have_to_allow_a_target(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    plan = table.plan("loopback", allow_destinations=("127.0.0.0/8",))
    ada = table.account("ada", plan=plan.id)
    _both, good = table.mint(ada, allow_destinations=(f"127.0.0.1:{origin.port}",))
    _other, bad = table.mint(ada, allow_destinations=("127.0.0.2",))
    assert refused(rig, origin, bearer(good)) == ""
    assert refused(rig, origin, bearer(bad)) == "credential_destination_not_allowed"
    table.plan("loopback", allow_destinations=("127.0.0.2",))
    assert refused(rig, origin, bearer(good)) == "account_destination_not_allowed"
    assert (
        rig.record(reason="account_destination_not_allowed")["rule"] == "account.allow_destinations: no entry matches"
    )


@pytest.mark.parametrize(
    ("rules", "word"),
    [
        (InheritedRules(deny_destinations=("localhost",)), "account_destination_denied"),
        (InheritedRules(deny_destinations=("127.0.0.0/8", "::1/128")), "account_destination_denied"),
        (InheritedRules(allow_destinations=("localhost",)), ""),
        (InheritedRules(allow_destinations=("127.0.0.0/8", "::1/128")), ""),
        (InheritedRules(allow_destinations=("192.0.2.1",)), "account_destination_not_allowed"),
    ],
)
def test_a_kept_connection_of_another_account_opens_no_way_around(
    rig: Rig, table: AccountsTable, rules: InheritedRules, word: str
) -> None:
    """The name is resolved, and a connection to it is idle when the account asks for it."""
    table.account("free")
    table.account("bound", rules=rules)
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        named = f"GET http://localhost:{origin.port}/ HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n"
        for name, expected in (("free", ""), ("bound", word), ("free", "")):
            with connect(rig) as client:
                client.sendall((named % credentials(name)).encode())
                head, _body = read_response(client)
                assert (b" 200 " in head, expected.encode() in head) == (not expected, True), head
        assert origin.connections == 1


def test_destinations_hold_through_upstreams(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    table.account("denies", rules=InheritedRules(deny_destinations=("blocked.example", "127.0.0.1")))
    table.account("allows", rules=InheritedRules(allow_destinations=("*.example",)))
    with Rig() as upstream:
        rig.configure(upstreams=upstream_list(of_rig(upstream)))
        assert refused(rig, origin, credentials("denies")) == "account_destination_denied"
        assert refused(rig, origin, credentials("allows")) == "account_destination_not_allowed"
        with connect(rig) as client:
            client.sendall(
                f"CONNECT blocked.example:443 HTTP/1.1\r\nHost: x\r\n{credentials('denies')}\r\n\r\n".encode()
            )
            assert b"account_destination_denied" in read_response(client)[0]
        rig.configure(upstreams=UpstreamsSpec())


def test_destinations_hold_for_datagrams(rig: Rig, table: AccountsTable) -> None:
    with responder() as allowed, responder() as denied:
        table.account("ada", rules=InheritedRules(allow_destinations=(f"127.0.0.1:{allowed}",)))
        rig.configure(protocol="socks5")
        with connect(rig) as sock, datagram_socket() as own:
            sock.sendall(b"\x05\x01\x02\x01\x03ada" + bytes((len(WORD),)) + WORD.encode())
            assert exactly(sock, 4) == b"\x05\x02\x01\x00"
            sock.sendall(b"\x05\x03\x00" + address(b"\0\0\0\0", 0))
            _code, relay = reply(sock)
            own.sendto(b"\0\0\0" + address(LOOPBACK, denied) + b"no", relay)
            own.sendto(b"\0\0\0" + address(LOOPBACK, allowed) + b"yes", relay)
            assert own.recv(100)[-3:] == b"YES"
        record = rig.record(reason="account_destination_not_allowed", method="UDP")
        assert (record["target_url"], record["user"]) == (f"127.0.0.1:{denied}", "ada")


# --- schedules ---


def window(start: float, end: float) -> ScheduleData:
    """Open between these moments, in minutes from now: the day and the week are UTC's."""
    now = time.time()
    first, last = (int((now + each * 60) // 60) for each in (start, end))
    day = (first // DAY + 3) % 7  # 1970 began on a Thursday
    return "UTC", (((day,), first % DAY, last % DAY or DAY),)


def test_outside_its_schedule_an_account_is_refused(rig: Rig, table: AccountsTable, origin: Origin) -> None:
    plan = table.plan("later", schedule=window(60, 120))
    table.account("later", plan=plan.id)
    table.account("now", plan=plan.id, rules=InheritedRules(schedule=window(-5, 60)))
    table.account("never", rules=InheritedRules(schedule=("Europe/Berlin", ())))
    table.account("nowhere", rules=InheritedRules(schedule=("Mars/Olympus", ((tuple(range(7)), 0, DAY),))))
    words = [refused(rig, origin, credentials(name)) for name in ("later", "now", "never", "nowhere")]
    assert words == ["outside_schedule", "", "outside_schedule", "outside_schedule"]


def test_a_changed_schedule_ends_open_tunnels(rig: Rig, table: AccountsTable) -> None:
    ada = table.account("ada", rules=InheritedRules(schedule=window(-5, 60)))
    _record, secret = table.mint(ada)
    with (
        Origin(echoes) as origin,
        password_tunnel(rig, origin, "ada") as one,
        tunnel(rig, origin, bearer(secret)) as other,
    ):
        echo(one, b"open")
        table.change(ada, rules=InheritedRules(schedule=window(60, 120)))
        assert is_cut(one)
        assert is_cut(other)

    def ended() -> bool:
        found = [each for each in list(rig.records) if each["method"] == "CONNECT"]
        return [each["reason"] for each in found] == ["outside_schedule"] * 2

    until(ended, "both records")
