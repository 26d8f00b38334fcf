"""Policies on SOCKS, with datagrams, behind upstreams and in explanations."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.messages.forwarding import Explain, RequestExplanation
from actors.bus.messages.specs import AccessSpec, PolicySpec, PoolSpec, RuleSpec, UpstreamsSpec
from actors.forwarding.fleet_objects import FleetObjects
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.socks_client import LOOPBACK, address, ask, datagram_socket, responder
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, counted, echoes, responds
from tests.kit.upstreams import of_rig, upstream_list

DENY, DIRECT = RuleSpec("nothing", use="deny"), RuleSpec("direct", use="direct")
NOT_ALLOWED = 2
"""The reply code of SOCKS5 for a refusal by rules."""


@pytest.fixture(scope="module")
def behind() -> Iterator[tuple[Rig, Rig]]:
    """A proxy, and the one that it has as its upstream."""
    with Rig(id="px2") as upstream, Rig(upstreams=upstream_list(of_rig(upstream))) as rig:
        yield rig, upstream


def apply(rig: Rig, *rules: RuleSpec, **changes: Any) -> None:
    rig.records.clear()
    rig.configure(FleetObjects(policies=(PolicySpec("policy_1", "office", rules),)), policy="office", **changes)


def by_name(rig: Rig, name: bytes, port: int) -> tuple[socket.socket, int]:
    sock, code, _bound = ask(rig, 1, b"\x03" + bytes((len(name),)) + name + port.to_bytes(2, "big"))
    return sock, code


# --- SOCKS ---


def test_a_target_by_address_is_none_of_a_rule_by_name(five: Rig) -> None:
    with Origin(echoes) as origin:
        apply(five, RuleSpec("name", destinations=(f"localhost:{origin.port}",), use="direct"), DENY)
        for name in (b"localhost", b"LOCALHOST", b"localhost."):
            sock, code = by_name(five, name, origin.port)
            with sock:
                assert code == 0
        sock, code, _bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert code == NOT_ALLOWED
        assert five.record(reason="policy_denied")["rule"] == "policy office[1] nothing"


def test_the_policy_of_all_proxies_decides_on_socks_and_about_datagrams(five: Rig) -> None:
    with Origin(echoes) as origin, responder() as port, responder() as other:
        refused = f"127.0.0.1:{origin.port}", f"127.0.0.1:{port}"
        blocked = PolicySpec("policy_2", "everywhere", (RuleSpec("blocked", destinations=refused, use="deny"),))
        five.records.clear()
        five.configure(FleetObjects(policies=(blocked,), first_policy="everywhere"), policy="")
        sock, code, _bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert code == NOT_ALLOWED
        assert five.record(reason="policy_denied")["rule"] == "policy everywhere[0] blocked"
        control, code, relay = ask(five, 3, address(b"\0\0\0\0", 0))
        with control, datagram_socket() as client:
            for to in (port, other):
                client.sendto(b"\0\0\0" + address(LOOPBACK, to) + b"hello", relay)
            assert client.recv(100) == b"\0\0\0" + address(LOOPBACK, other) + b"HELLO"


def test_an_address_given_as_a_name_is_an_address(five: Rig) -> None:
    with Origin(echoes) as origin:
        apply(five, RuleSpec("inside", destinations=("127.0.0.0/8", "::1"), use="deny"))
        for name in (b"127.0.0.1", b"::ffff:127.0.0.1", b"localhost"):
            sock, code = by_name(five, name, origin.port)
            with sock:
                assert code == NOT_ALLOWED, name
        assert origin.connections == 0


def test_rules_of_plain_http_are_for_no_tunnel(five: Rig) -> None:
    with Origin(echoes) as origin:
        apply(
            five, RuleSpec("http", methods=("GET",), use="direct"), RuleSpec("paths", paths=("*",), use="direct"), DENY
        )
        sock, code, _bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert code == NOT_ALLOWED


def test_datagrams_are_judged_one_by_one_and_by_the_policies_of_now(five: Rig) -> None:
    with responder() as port, responder() as other:
        apply(five, RuleSpec("one", destinations=(f"127.0.0.1:{port}",), use="deny"), DIRECT)
        control, code, relay = ask(five, 3, address(b"\0\0\0\0", 0))
        assert code == 0
        with control, datagram_socket() as client:
            for to in (port, other):
                client.sendto(b"\0\0\0" + address(LOOPBACK, to) + b"hello", relay)
            assert client.recv(100) == b"\0\0\0" + address(LOOPBACK, other) + b"HELLO"
            apply(five, DIRECT)
            client.sendto(b"\0\0\0" + address(LOOPBACK, port) + b"hello", relay)
            assert client.recv(100) == b"\0\0\0" + address(LOOPBACK, port) + b"HELLO"


def test_a_peer_of_bind_is_judged(five: Rig) -> None:
    apply(five, RuleSpec("inside", destinations=("127.0.0.0/8",), use="deny"))
    sock, code, _bound = ask(five, 2, address(LOOPBACK, 9))
    with sock:
        assert code == NOT_ALLOWED


def test_what_is_to_go_through_a_pool_that_is_not_there_goes_nowhere(five: Rig) -> None:
    with Origin(echoes) as origin:
        apply(five, RuleSpec("far", use="pool:paris"))
        sock, code, _bound = ask(five, 1, address(LOOPBACK, origin.port))
        with sock:
            assert code != 0
        assert origin.connections == 0
        assert "paris" in five.record(status_code=503)["detail"]


# --- upstreams ---


def test_direct_goes_past_the_upstreams_and_the_rest_through_them(behind: tuple[Rig, Rig]) -> None:
    rig, _upstream = behind
    with Origin(responds(*[counted(b"in")] * 9)) as origin:
        for rules, parent in (((DIRECT,), ""), ((), f"http-{_upstream.port}"), ((DIRECT,), "")):
            apply(rig, *rules)
            with connect(rig) as client:
                client.sendall(get(origin))
                assert read_response(client)[1] == b"in"
            assert rig.record(status_code=200)["parent"] == parent


def test_a_refusal_by_an_address_holds_where_an_upstream_would_resolve(behind: tuple[Rig, Rig]) -> None:
    rig, upstream = behind
    upstream.records.clear()
    apply(rig, RuleSpec("inside", destinations=("127.0.0.0/8", "::1"), use="deny"))
    with connect(rig) as client:
        client.sendall(b"GET http://localhost:9/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
        head = read_response(client)[0]
    assert b"rule=policy_denied" in head or b"destination_ip_prohibited" in head
    assert rig.record(status_code=403)
    assert upstream.records == []


# --- explanations ---


def explained(rig: Rig, target: str, **asked: Any) -> RequestExplanation:
    reply = rig.ask(Explain("192.0.2.7", None, target, **asked))
    assert isinstance(reply, RequestExplanation)
    return reply


def test_an_explanation_lists_every_rule_with_the_reason(five: Rig) -> None:
    rules = (
        RuleSpec("team", accounts=("alice",), use="direct"),
        RuleSpec("read", methods=("GET",), paths=("/docs/*",), use="direct"),
        RuleSpec("inside", destinations=("127.0.0.0/8",), use="deny"),
        RuleSpec("tried", use="deny", report=True),
    )
    apply(five, *rules)
    denied = explained(five, "127.0.0.1:80")
    assert (denied.decision, denied.reason, denied.rule, denied.stage) == (
        "deny",
        "policy_denied",
        "policy office[2] inside",
        "policy",
    )
    assert [(rule.name, rule.matches) for rule in denied.rules] == [
        ("team", "no"),
        ("read", "no"),
        ("inside", "yes"),
        ("tried", "yes"),
    ]
    assert denied.rules[1].why == "the rule is about plain HTTP, and this is a tunnel"
    plain = explained(five, "http://127.0.0.1/docs/../docs/a?b#c")
    assert (plain.decision, plain.rule) == ("allow", "policy office[1] read")
    assert explained(five, "http://127.0.0.1/docs/a", method="POST").decision == "deny"
    assert explained(five, "http://127.0.0.1/docs/..%2fa").rules[1].why.startswith("paths: the path can be read")


def test_an_explanation_by_the_address_of_a_name(five: Rig) -> None:
    apply(five, RuleSpec("inside", destinations=("127.0.0.0/8", "::1"), use="deny"), DIRECT)
    denied = explained(five, "localhost:80")
    assert (denied.decision, denied.stage, denied.rules[0].matches) == ("deny", "policy", "yes")
    assert all(each.decision == "deny" for each in denied.addresses)
    apply(five, access=AccessSpec(deny_destinations=("localhost",)))
    assert explained(five, "localhost:80").reason == "destination_denied"
    five.configure(access=AccessSpec())


def test_an_explanation_behind_upstreams(behind: tuple[Rig, Rig]) -> None:
    rig, upstream = behind
    access = AccessSpec(deny_destinations=("*.example",))
    way = RuleSpec("way", destinations=("a.example",), use="pool:paris")
    apply(rig, way, access=access)
    missing = explained(rig, "a.example:443")
    assert (missing.decision, missing.reason, missing.stage) == ("deny", "destination_unavailable", "upstreams")
    assert (missing.rule, missing.upstreams) == ("policy office[0] way", None)
    draft = explained(rig, "a.example:443", draft=PolicySpec("policy_1", "office", (way,)))
    assert draft.decision == "allow", "the pool may come with it"
    paris = PoolSpec("pool_paris", "paris", 1, upstream_list(of_rig(upstream)))
    policy = PolicySpec("policy_1", "office", (way,))
    rig.configure(FleetObjects(policies=(policy,), pools=(paris,)), policy="office", access=access)
    assert explained(rig, "a.example:443").decision == "allow"
    assert explained(rig, "b.example:443").reason == "destination_denied"
    other = explained(rig, "a.example:443", tls_name="c.example")
    assert (other.decision, other.stage, other.upstreams) == ("deny", "tls_name", None)
    apply(rig, RuleSpec("any", tls_name="allowed"), access=access)
    assert explained(rig, "a.test:443", tls_name="b.test").tls_name.kind == "match"
    assert explained(rig, "a.test:443", tls_name="b.example").reason == "tls_name_denied"
    rig.configure(access=AccessSpec(), upstreams=UpstreamsSpec())
