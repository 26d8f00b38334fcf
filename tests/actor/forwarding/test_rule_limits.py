"""Limits of rules in a real forwarding actor: counted for each rule, over all clients of the proxy."""

from __future__ import annotations

import time
from typing import Any

import pytest

from actors.bus.messages.specs import LimitsSpec, PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.state.counts import COUNTED
from tests.actor.forwarding.account_client import account, credentials
from tests.actor.forwarding.connection_pages import page
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.actor.forwarding.socks_client import address, ask
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_head, responds

RATE = 200_000


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Without the policies, counts and accounts of the test before."""
    shared.configure(FleetObjects(), policy="", accounts=(), auth_required=False)
    shared.records.clear()
    return shared


def limit(rig: Rig, *rules: RuleSpec, **changes: Any) -> None:
    rig.configure(FleetObjects(policies=(PolicySpec("policy_office", "office", rules),)), policy="office", **changes)


def status(rig: Rig, origin: Origin, path: str = "/", *fields: str) -> tuple[int, bytes]:
    with connect(rig) as client:
        client.sendall(get(origin, path, *fields))
        head, _body = read_response(client)
    return int(head.split()[1]), head


def refused_tunnel(rig: Rig, origin: Origin) -> bytes:
    with connect(rig) as client:
        client.sendall(f"CONNECT {origin.authority} HTTP/1.1\r\nHost: {origin.authority}\r\n\r\n".encode())
        return read_response(client)[0]


def test_requests_beyond_the_limit_are_refused_with_policy_and_rule(rig: Rig) -> None:
    slow = RuleSpec("slow", paths=("/slow*",), limits=LimitsSpec(requests_per_minute=2))
    limit(rig, slow, RuleSpec("rest", limits=LimitsSpec(requests_per_minute=1)))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert [status(rig, origin, "/slow")[0] for _ in range(3)] == [200, 200, 429]
        assert [status(rig, origin)[0] for _ in range(2)] == [200, 429]
        code, head = status(rig, origin, "/slow/again")
    assert code == 429
    assert rb'details="at most 2 requests a minute (policy office, rule \"slow\")"; rule=rule_request_limit' in head
    assert 1 <= int(head.lower().split(b"retry-after: ")[1].split(b"\r\n")[0]) <= COUNTED
    record = rig.record(reason="rule_request_limit")
    assert (record["status_code"], record["rule"]) == (429, "policy office[0] slow")
    until(lambda: rig.counters and rig.counters.refusals.get("rule_request_limit") == 3, "refusals are counted")


def test_connections_are_requests_and_tunnels_under_way_and_free_when_they_end(rig: Rig) -> None:
    limit(rig, RuleSpec("few", limits=LimitsSpec(connections=2)))
    with Origin(echoes) as origin, tunnel(rig, origin) as first:
        with tunnel(rig, origin):
            head = refused_tunnel(rig, origin)
            assert head.startswith(b"HTTP/1.1 429 ")
            assert b"rule=rule_connection_limit" in head
        until(lambda: len([each for each in page(rig).connections if each.state == "tunnel"]) == 1, "it has ended")
        with tunnel(rig, origin) as third:
            for sock in (first, third):
                sock.sendall(b"x")
                assert sock.recv(1) == b"x"


def test_a_connection_that_is_kept_open_takes_no_place(rig: Rig) -> None:
    limit(rig, RuleSpec("one", limits=LimitsSpec(connections=1)))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(rig) as one, connect(rig) as other:
        for client in (one, other, one, other):
            client.sendall(get(origin))
            assert read_response(client)[0].startswith(b"HTTP/1.1 200 ")


def test_a_place_is_free_again_after_a_request_that_failed(rig: Rig) -> None:
    limit(rig, RuleSpec("one", limits=LimitsSpec(connections=1)))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin, connect(rig) as client:
        client.sendall(b"GET http://127.0.0.1:1/ HTTP/1.1\r\nHost: x\r\n\r\n")
        assert read_head(client).startswith(b"HTTP/1.1 502 ")
        assert status(rig, origin)[0] == 200


def test_all_clients_share_the_bandwidth_of_a_rule_and_no_other_request_does(rig: Rig) -> None:
    slow = RuleSpec("slow", paths=("/slow",), limits=LimitsSpec(bandwidth_out=RATE))
    limit(rig, slow, accounts=(account("ada"), account("bob")), auth_required=True)
    body = b"x" * RATE
    with Origin(responds(*[counted(body)] * 4)) as origin, connect(rig) as one, connect(rig) as other:
        began = time.monotonic()
        one.sendall(get(origin, "/slow", credentials("ada")))
        other.sendall(get(origin, "/slow", credentials("bob")))
        for client in (one, other):
            assert read_response(client)[1] == body
        assert time.monotonic() - began > 0.8 * 2 * len(body) / RATE
        unlimited = b"y" * (1 << 20)
    with Origin(responds(counted(unlimited))) as origin, connect(rig) as client:
        client.sendall(get(origin, "/fast", credentials("ada")))
        assert read_response(client)[1] == unlimited


def test_a_changed_limit_holds_for_the_tunnel_that_is_open(rig: Rig) -> None:
    limit(rig, RuleSpec("slow", limits=LimitsSpec(bandwidth_in=1024)))
    data = b"x" * 2_000_000
    with Origin(echoes) as origin, tunnel(rig, origin) as sock:
        sock.settimeout(60)
        sock.sendall(data[:1000])
        limit(rig, RuleSpec("slow"))
        sock.sendall(data[1000:100_000])
        received = 0
        while received < 100_000:
            received += len(sock.recv(1 << 16))  # at the rate before this would take a minute and a half


def test_of_two_policies_both_hold(rig: Rig) -> None:
    plan = PolicySpec("policy_plan", "plan", (RuleSpec("own", limits=LimitsSpec(requests_per_minute=2)),))
    office = PolicySpec("policy_office", "office", (RuleSpec("all", limits=LimitsSpec(requests_per_minute=3)),))
    users = (account("ada", policies=("plan",)), account("bob", policies=("plan",)), account("eve"))
    rig.configure(FleetObjects(policies=(plan, office)), policy="office", accounts=users, auth_required=True)
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        seen = [status(rig, origin, "/", credentials(user)) for user in ("ada", "bob", "ada", "eve", "eve")]
    assert [code for code, _head in seen] == [200, 200, 429, 200, 429]
    assert rb"policy plan, rule \"own\"" in seen[2][1]
    assert rb"policy office, rule \"all\"" in seen[4][1]


def test_a_rule_in_report_mode_limits_nothing(rig: Rig) -> None:
    limit(rig, RuleSpec("tried", report=True, limits=LimitsSpec(requests_per_minute=1)))
    with Origin(responds(*[counted(b"yes")] * 9)) as origin:
        assert [status(rig, origin)[0] for _ in range(3)] == [200] * 3


def test_socks_clients_get_a_failure() -> None:
    with Rig(protocol="socks5") as five, Origin(echoes) as origin:
        limit(five, RuleSpec("one", limits=LimitsSpec(requests_per_minute=1)))
        codes = []
        for _ in range(2):
            sock, code, _bound = ask(five, 1, address(b"\x7f\0\0\x01", origin.port))
            sock.close()
            codes.append(code)
        assert codes == [0, 2]
        assert five.record(reason="rule_request_limit")["rule"] == "policy office[0] one"
