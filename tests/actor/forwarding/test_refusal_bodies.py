"""Refusals of a real forwarding actor as clients get them: whole, at once, and with the id of their record."""

from __future__ import annotations

import json
import socket
import statistics
import time
from collections.abc import Iterator
from typing import Any

import pytest

from actors.bus.messages.common import ApplySettings, Done
from actors.bus.messages.specs import AccessSpec, AccountSpec, PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from config.passwords import hash_password
from tests.actor.forwarding.account_client import credentials
from tests.actor.forwarding.http_client import connect, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable
from tests.kit.forwarding_rig import Rig
from tests.kit.settings import boot_settings
from tests.kit.tables import table

CONTACT = "it-help@corp.example"
DENY = RuleSpec("no ads", destinations=("ads.example",), use="deny", reason="docs only")
OFFICE = FleetObjects(policies=(PolicySpec("policy_1", "office", (DENY,)),))
PATIENT = 2.0
"""Seconds within which a slow machine has refused; a benchmark measures how soon a quick one does."""


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    with Rig(proxy={"contact": CONTACT}) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Without the policies, rules and accounts of the test before."""
    shared.configure(FleetObjects(), policy="", access=AccessSpec(), accounts=(), auth_required=False)
    shared.records.clear()
    return shared


def request(method: str, *fields: str, body: bytes = b"") -> bytes:
    target = "ads.example:443" if method == "CONNECT" else "http://ads.example/"
    return "\r\n".join((f"{method} {target} HTTP/1.1", "Host: ads.example", *fields, "", "")).encode() + body


def refusal(rig: Rig, *request_: bytes) -> tuple[bytes, dict[str, Any]]:
    """Head and problem details of the response."""
    with connect(rig) as client:
        client.sendall(b"".join(request_))
        head, body = read_response(client)
    return head, json.loads(body)


def test_the_body_names_its_record_and_whom_to_ask(rig: Rig) -> None:
    rig.configure(OFFICE, policy="office")
    for method in ("GET", "CONNECT"):
        rig.records.clear()
        head, body = refusal(rig, request(method))
        assert b"Content-Type: application/problem+json" in head
        record = rig.record(reason="policy_denied")
        assert (body["request_id"], body["contact"]) == (record["request_id"], CONTACT)
        assert (body["policy"], body["rule"], body["host"], body["method"]) == (
            "office",
            "no ads",
            "ads.example",
            method,
        )
        assert record["detail"] == 'docs only (policy office, rule "no ads")'


def test_whom_to_ask_changes_while_the_proxy_runs(rig: Rig) -> None:
    rig.configure(OFFICE, policy="office")
    for contact in ("help@corp.example", None, CONTACT):
        assert rig.ask(ApplySettings({"proxy": boot_settings(proxy={"contact": contact})["proxy"]})) == Done()
        assert refusal(rig, request("GET"))[1].get("contact") == contact


def test_a_client_that_is_rejected_before_its_request_reads_why(rig: Rig) -> None:
    rig.configure(access=AccessSpec(deny_clients=("127.0.0.0/8",)))
    with connect(rig) as client:
        _head, body = read_response(client)
    assert json.loads(body)["request_id"] == rig.record(reason="client_denied")["request_id"]
    assert not {"rule", "host", "method"} & set(json.loads(body))


def test_what_is_no_request_is_refused_with_its_record(rig: Rig) -> None:
    head, body = refusal(rig, b"GET http://a.example/ HTTP/1.1\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert body["request_id"] == rig.record(status_code=400)["request_id"]


def test_an_access_rule_is_named_by_its_place_and_not_by_its_entry(rig: Rig) -> None:
    rig.configure(access=AccessSpec(deny_destinations=("a.example", "*.example:1-65535")))
    _head, body = refusal(rig, request("GET"))
    assert (body["reason"], body["rule"]) == ("destination_denied", "access.deny_destinations[1]")
    assert "policy" not in body


def test_before_credentials_nothing_is_disclosed(rig: Rig) -> None:
    account = AccountSpec("acc_1", "alice", hash_password("secret"))
    rig.configure(OFFICE, policy="office", accounts=(account,), auth_required=True)
    head, body = refusal(rig, request("CONNECT"))
    assert b"\r\nProxy-Authenticate: Basic " in head
    assert (body["status"], body["reason"]) == (407, "http_request_denied")
    assert not {"policy", "rule", "list"} & set(body)


def test_a_plan_that_does_not_disclose_holds_for_its_accounts(rig: Rig) -> None:
    table = AccountsTable(rig)
    try:
        plan = table.plan("quiet")
        table.account("quiet", plan=plan.id)
        table.account("loud")
        rig.configure(OFFICE, policy="office", auth_required=True)
        head, body = refusal(rig, request("CONNECT", credentials("quiet")))
        assert body["policy"] == "office"
        table.put(plan._replace(disclose=False))
        for method in ("GET", "CONNECT"):
            rig.records.clear()
            head, body = refusal(rig, request(method, credentials("quiet")))
            assert not {"policy", "rule", "list"} & set(body)
            assert body["detail"] == "docs only"
            assert b'details="docs only"; rule=policy_denied' in head
            record = rig.record(reason="policy_denied")
            assert (record["rule"], record["detail"]) == (
                "policy office[0] no ads",
                'docs only (policy office, rule "no ads")',
            )
        assert refusal(rig, request("CONNECT", credentials("loud")))[1]["rule"] == "no ads"
    finally:
        table.close()


def test_a_browser_gets_a_page(rig: Rig) -> None:
    rig.configure(OFFICE, policy="office")
    for request_ in (
        request("GET", "Accept: text/html,*/*;q=0.8"),
        request("CONNECT", "User-Agent: Mozilla/5.0 (X11; Linux x86_64)"),
    ):
        with connect(rig) as client:
            client.sendall(request_)
            head, body = read_response(client)
        assert b"Content-Type: text/html; charset=utf-8" in head
        assert b"<h1>A policy denies the request</h1><p>docs only" in body


def test_head_gets_no_body(rig: Rig) -> None:
    rig.configure(OFFICE, policy="office")
    with connect(rig) as client:
        client.sendall(request("HEAD") + request("HEAD", "Connection: close"))
        received = b"".join(iter(lambda: client.recv(65536), b""))
    assert b"{" not in received


def read_to_the_end(client: socket.socket) -> bytes:
    """What comes until the proxy closes. Raises `ConnectionResetError`."""
    return b"".join(iter(lambda: client.recv(65536), b""))


@table(
    "sent",
    [
        request("CONNECT"),
        request("CONNECT", body=b"\x16\x03\x01" + b"a" * 100_000),
        request("GET", "Content-Length: 500000", body=b"a" * 200_000),
        request("POST", "Transfer-Encoding: chunked", body=b"10000\r\n" + b"a" * 65536),
    ],
    ids=["tunnel", "tunnel that goes on", "pending body", "pending chunks"],
)
def test_a_refusal_comes_whole_and_at_once_whatever_the_client_still_sends(rig: Rig, sent: bytes) -> None:
    rig.configure(OFFICE, policy="office")
    for _ in range(5):
        with connect(rig) as client:
            began = time.monotonic()
            client.sendall(sent)
            head, body = read_response(client)
            assert time.monotonic() - began < PATIENT
            assert head.startswith(b"HTTP/1.1 403 ")
            assert json.loads(body)["reason"] == "policy_denied"
            client.shutdown(socket.SHUT_WR)
            assert read_to_the_end(client) == b"", "an end, and no reset"


def test_most_refusals_come_within_milliseconds(rig: Rig) -> None:
    rig.configure(OFFICE, policy="office")
    times = []
    for _ in range(50):
        with connect(rig) as client:
            began = time.monotonic()
            client.sendall(request("CONNECT"))
            read_response(client)
            times.append(time.monotonic() - began)
    assert statistics.median(times) < 0.05
