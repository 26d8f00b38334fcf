"""An explanation is what really happens, by a real actor. The order that both go by has its own tests
(`tests/unit/actors/forwarding/test_decision.py`)."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import Failed
from actors.bus.messages.forwarding import Explain, RequestExplanation
from actors.bus.messages.specs import AccessSpec, EgressSpec
from actors.forwarding.context import ForwardingContext
from actors.forwarding.explain import explain
from actors.forwarding.net.dialer import Dialer
from actors.forwarding.net.resolver import Resolution, Resolved, Resolver, new_threads
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.targets import read_target
from tests.actor.forwarding.http_client import get, read_response
from tests.kit.forwarding_rig import Rig, spec
from tests.kit.scripted_origins import Origin, counted, responds
from tests.kit.tables import table


@table(
    ("written", "host", "port"),
    [
        ("http://Example.com/path?q", "example.com", 80),
        ("https://example.com", "example.com", 443),
        ("HTTPS://example.com:8443/", "example.com", 8443),
        ("example.com:25", "example.com", 25),
        ("example.com", "example.com", 443),
        ("192.0.2.1", "192.0.2.1", 443),
        ("[2001:db8::1]:80", "2001:db8::1", 80),
        ("2001:DB8::1", "2001:db8::1", 443),
    ],
)
def test_a_target_may_be_written_as(written: str, host: str, port: int) -> None:
    target = read_target(written)
    assert (target.host, target.port) == (host, port)


@table("written", ["", "ftp://a.example/", "http://u@a.example/", "127.1", "a b", "a:0", "ä.example"])
def test_what_a_proxy_would_not_read_is_no_target(written: str) -> None:
    with pytest.raises(Refused):
        read_target(written)


def test_a_long_target_takes_no_time() -> None:
    before = time.thread_time()
    with pytest.raises(Refused):
        read_target(":" * 2047 + "x")
    assert time.thread_time() - before < 1


# --- a real actor ---


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with Rig() as shared:
        yield shared


def real_status(rig: Rig, client_ip: str, origin: Origin) -> int:
    with socket.create_connection(("127.0.0.1", rig.port), 20, (client_ip, 0)) as client:
        client.sendall(get(origin))
        return int(read_response(client)[0].split()[1])


@table(
    ("access", "stage", "reason"),
    [
        (AccessSpec(), "address", ""),
        (AccessSpec(deny_clients=("127.0.0.2",)), "client", "client_denied"),
        (AccessSpec(allow_clients=("127.0.0.3",)), "client", "client_not_allowed"),
        (AccessSpec(allow_clients=("127.0.0.2",)), "address", ""),
        (AccessSpec(deny_destinations=("127.0.0.1",)), "address", "destination_denied"),
        (AccessSpec(deny_destinations=(":1-65535",)), "name", "destination_denied"),
        (AccessSpec(allow_destinations=("a.example",)), "name", "destination_not_allowed"),
        (AccessSpec(allow_destinations=("192.0.2.0/24",)), "address", "destination_not_allowed"),
        (AccessSpec(deny_clients=("127.0.0.2",), mode="report"), "client", "reported:client_denied"),
        (AccessSpec(deny_destinations=("*",), mode="report"), "address", "reported:destination_denied"),
    ],
)
def test_a_real_actor_does_what_it_explains(rig: Rig, access: AccessSpec, stage: str, reason: str) -> None:
    rig.configure(access=access)
    with Origin(responds(counted(b"yes"))) as origin:
        explanation = rig.ask(Explain("127.0.0.2", None, f"http://{origin.authority}/"))
        assert isinstance(explanation, RequestExplanation)
        assert origin.connections == 0
        assert (explanation.stage, explanation.reason) == (stage, reason)
        assert (explanation.decision == "allow") == (real_status(rig, "127.0.0.2", origin) == 200)


def test_the_guard_explains_itself(rig: Rig) -> None:
    rig.configure(access=AccessSpec())
    explanation = rig.ask(Explain("127.0.0.1", None, "10.0.0.1:80"))
    assert (explanation.decision, explanation.stage, explanation.reason) == (
        "deny",
        "egress_guard",
        "destination_ip_prohibited",
    )
    assert [(each.address, each.decision) for each in explanation.addresses] == [("10.0.0.1", "deny")]


def test_an_unknown_user_and_a_bad_target_are_reported(rig: Rig) -> None:
    rig.configure(access=AccessSpec(), auth_username="ada", auth_hash="x")
    assert rig.ask(Explain("127.0.0.1", "eve", "127.0.0.1:80")).stage == "user"
    assert rig.ask(Explain("127.0.0.1", "ada", "127.0.0.1:80")).decision == "allow"
    without = rig.ask(Explain("127.0.0.1", None, "127.0.0.1:80"))
    assert (without.decision, without.stage, "407" in without.rule) == ("deny", "user", True)
    assert rig.ask(Explain("127.0.0.1", None, "127.1:80")).__class__ is Failed
    rig.configure(auth_username=None, auth_hash=None)


# --- names in handshakes, without any network ---

ZONE: dict[str, Resolution] = {"a.test": Resolved(("127.0.0.1", "127.0.1.1")), "private.test": Resolved(("10.0.0.1",))}


class Bench:
    """A context whose resolver knows `ZONE`."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.shared = ForwardingContext(self.loop, lambda _row: None, 10, 10.0)
        resolver = Resolver(self.loop, new_threads(self.loop), ZONE.__getitem__)
        self.shared.dialer = Dialer(self.loop, resolver, self.shared.policy.access)

    def explain(self, question: Explain, **changes: Any) -> RequestExplanation:
        """The explanation by a proxy with these `changes`."""
        self.shared.configure(spec(1, **changes), EgressSpec("public_only", ("127.0.0.0/8", "::1"), ()))
        results: list[RequestExplanation] = []

        def done(result: RequestExplanation) -> None:
            results.append(result)
            self.loop.stop()

        self.loop.call_soon(lambda: explain(self.shared, question, done))
        self.loop.run()
        return results[0]


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.loop.close()


ALLOW_A = AccessSpec(allow_destinations=("a.test", "127.0.0.0/8"))
ENTRY = "access.allow_destinations[0] a.test"


@table(
    ("changes", "target", "name", "check", "kind", "decision"),
    [
        ({}, "a.test:443", None, ("record", "tls_name", True), "", "allow"),
        ({}, "a.test:443", "evil.test", ("record", "tls_name", True), "mismatch", "allow"),
        ({}, "a.test:8443", "evil.test", ("record", "tls_name", False), "", "allow"),
        ({"tls_ports": (8443,)}, "a.test:8443", "a.test", ("record", "tls_name", True), "match", "allow"),
        ({"tls_name": "match"}, "http://a.test:443/", "evil.test", ("match", "tls_name", False), "", "allow"),
        ({"tls_name": "off"}, "a.test:443", "evil.test", ("off", "tls_name", True), "", "allow"),
        ({"access": ALLOW_A}, "a.test:443", None, ("match", ENTRY, True), "", "allow"),
        ({"access": ALLOW_A}, "a.test:443", "A.test", ("match", ENTRY, True), "match", "allow"),
        ({"access": ALLOW_A}, "a.test:443", "evil.test", ("match", ENTRY, True), "mismatch", "deny"),
        ({"access": ALLOW_A}, "a.test:443", "", ("match", ENTRY, True), "no_name", "deny"),
        ({"access": ALLOW_A}, "127.0.0.1:443", "evil.test", ("record", "tls_name", True), "match", "allow"),
        ({"tls_name": "match"}, "private.test:443", "evil.test", ("match", "tls_name", True), "", "deny"),
    ],
)
def test_a_name_of_a_handshake_is_explained(
    bench: Bench,
    changes: dict[str, Any],
    target: str,
    name: str | None,
    check: tuple[str, str, bool],
    kind: str,
    decision: str,
) -> None:
    found = bench.explain(Explain("127.0.0.1", None, target, tls_name=name), **changes)
    said = found.tls_name
    assert ((said.check, said.rule, said.port_checked), said.kind) == (check, kind)
    assert (said.name, found.decision) == (name, decision)
    if decision == "deny" and kind:
        assert (found.reason, found.stage, found.rule) == ("tls_name_denied", "tls_name", check[1])
        assert said.detail.startswith(f"{kind}: ")


def test_a_name_that_would_be_refused_is_reported_where_the_proxy_reports(bench: Bench) -> None:
    access = AccessSpec(allow_destinations=("a.test",), mode="report")
    found = bench.explain(Explain("127.0.0.1", None, "a.test:443", tls_name="evil.test"), access=access)
    assert (found.decision, found.reason, found.stage) == ("allow", "reported:tls_name_denied", "tls_name")
