"""Policies in a real forwarding actor, between real sockets: what decides, what is recorded, and when it holds."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from actors.bus.messages.specs import AccessSpec, AccountSpec, EgressSpec, PolicySpec, RuleSpec
from actors.forwarding.fleet_objects import FleetObjects
from config.passwords import hash_password
from tests.actor.forwarding.http_client import connect, get, read_response, tunnel
from tests.kit.forwarding_rig import Rig, until
from tests.kit.scripted_origins import Origin, counted, echoes, read_head, responds


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Without the policies, rules and accounts of the test before."""
    shared.configure(FleetObjects(), policy="", access=AccessSpec(), accounts=(), auth_required=False)
    shared.records.clear()
    return shared


def policy(*rules: RuleSpec, name: str = "office", ended: int = 0) -> PolicySpec:
    return PolicySpec(f"policy_{name}", name, rules, ended=ended)


def apply(rig: Rig, *rules: RuleSpec, ended: int = 0, **changes: Any) -> None:
    rig.configure(FleetObjects(policies=(policy(*rules, ended=ended),)), policy="office", **changes)


def answer(rig: Rig, request: bytes) -> tuple[bytes, bytes]:
    with connect(rig) as client:
        client.sendall(request)
        return read_response(client)


DENY, DIRECT = RuleSpec("nothing", use="deny"), RuleSpec("direct", use="direct")


def test_a_refusal_names_policy_and_rule_everywhere(rig: Rig) -> None:
    apply(rig, RuleSpec("docs only", destinations=("127.0.0.0/8",), use="deny", reason="ask IT"))
    with Origin(responds(counted(b"no"))) as origin:
        head, body = answer(rig, get(origin))
        assert origin.connections == 0
    assert head.startswith(b"HTTP/1.1 403 ")
    assert rb'details="ask IT (policy office, rule \"docs only\")"; rule=policy_denied' in head
    assert b"ask IT" in body
    record = rig.record(reason="policy_denied")
    assert (record["status_code"], record["rule"]) == (403, "policy office[0] docs only")
    until(lambda: rig.counters and rig.counters.decisions.get("office/docs only"), "the decision is counted")
    assert rig.counters is not None
    assert rig.counters.refusals["policy_denied"] >= 1


def test_the_policy_of_all_proxies_decides_before_any_other_and_without_any(rig: Rig) -> None:
    account = AccountSpec("acc_1", "alice", hash_password("secret"), policies=("office",))
    everywhere = policy(RuleSpec("blocked", destinations=("127.0.0.0/8",), use="deny"), name="everywhere")
    first = FleetObjects(policies=(everywhere, policy(DIRECT)), first_policy="everywhere")
    login = "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"
    with Origin(responds(*[counted(b"in")] * 9)) as origin:
        for own in ({"policy": "office"}, {"policy": ""}, {"accounts": (account,), "auth_required": True}):
            rig.records.clear()
            rig.configure(first, **own)
            assert answer(rig, get(origin, "/", login))[0].startswith(b"HTTP/1.1 403 ")
            assert rig.record(reason="policy_denied")["rule"] == "policy everywhere[0] blocked"
            request = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: {origin.authority}\r\n{login}\r\n\r\n"
            assert answer(rig, request.encode())[0].startswith(b"HTTP/1.1 403 ")
        assert origin.connections == 0
        rig.configure(replace(first, first_policy=""))
        assert answer(rig, get(origin, "/", login))[1] == b"in"


def test_no_rule_lifts_the_guard_or_what_an_account_may_not(rig: Rig) -> None:
    account = AccountSpec("acc_1", "alice", hash_password("secret"), deny_destinations=(":1-65535",))
    login = "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"
    with Origin(responds(counted(b"no"))) as origin:
        apply(rig, DIRECT, accounts=(account,), auth_required=True)
        assert b"rule=account_destination_denied" in answer(rig, get(origin, "/", login))[0]
        assert origin.connections == 0
    with Rig(EgressSpec("public_only", (), ())) as guarded, Origin(responds(counted(b"no"))) as origin:
        apply(guarded, DIRECT)
        assert b"error=destination_ip_prohibited" in answer(guarded, get(origin))[0]


def test_a_change_holds_for_the_next_request_of_a_connection_and_for_kept_ones(rig: Rig) -> None:
    with Origin(responds(*[counted(b"in")] * 9)) as origin, connect(rig) as client:
        for rules, allowed in (((DIRECT,), True), ((DENY,), False), ((DIRECT,), True), ((DENY,), False)):
            apply(rig, *rules)
            client.sendall(get(origin))
            assert read_response(client)[0].startswith(b"HTTP/1.1 200 " if allowed else b"HTTP/1.1 403 ")


def test_a_kept_connection_of_one_account_is_none_for_another(rig: Rig) -> None:
    hashed = hash_password("secret")
    accounts = tuple(AccountSpec(f"acc_{name}", name, hashed) for name in ("alice", "bob"))
    with Origin(responds(*[counted(b"in")] * 9)) as origin:
        rules = RuleSpec("alice", accounts=("alice",), use="direct"), RuleSpec("rest", accounts=("bob",), use="deny")
        apply(rig, *rules, accounts=accounts, auth_required=True)
        assert answer(rig, get(origin, "/", "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"))[1] == b"in"
        head = answer(rig, get(origin, "/", "Proxy-Authorization: Basic Ym9iOnNlY3JldA=="))[0]
        assert b"rule=policy_denied" in head
        assert answer(rig, get(origin, "/", "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"))[1] == b"in"
        assert origin.connections == 1


def test_the_plan_of_an_account_is_asked_before_the_proxy(rig: Rig) -> None:
    account = AccountSpec("acc_1", "alice", hash_password("secret"), policies=("of-plan",), tags=("ci",))
    of_plan = policy(RuleSpec("ci", accounts=("tag:ci",), use="direct"), name="of-plan")
    with Origin(responds(*[counted(b"in")] * 9)) as origin:
        objects = FleetObjects(policies=(of_plan, policy(DENY)))
        rig.configure(objects, policy="office", accounts=(account,), auth_required=True)
        assert answer(rig, get(origin, "/", "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"))[1] == b"in"
        rig.configure(accounts=(replace(account, tags=()),))
        head = answer(rig, get(origin, "/", "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"))[0]
        assert rb"policy office, rule \"nothing\"" in head


def test_fields_of_a_request_are_set_and_removed_and_nothing_else(rig: Rig) -> None:
    seen: list[bytes] = []

    def record(sock: Any) -> None:
        for _ in range(2):
            seen.append(read_head(sock))
            sock.sendall(counted(b"in"))

    with Origin(record) as origin, connect(rig) as client:
        apply(
            rig, RuleSpec("mark", paths=("/marked*",), set_headers=(("X-Team", "blue"),), remove_headers=("Referer",))
        )
        for path in ("/marked", "/plain"):
            client.sendall(get(origin, path, "X-Team: red", "x-team: green", "Referer: r", "X-Other: o"))
            assert read_response(client)[1] == b"in"
    marked, plain = seen
    assert marked.count(b"X-Team") == 1
    assert b"X-Team: blue\r\n" in marked
    assert b"Referer" not in marked
    assert b"x-team: green\r\n" in plain
    assert b"Referer: r\r\n" in plain
    assert all(b"X-Other: o\r\n" in each and b"Host: " in each for each in seen)


def test_rules_in_report_mode_are_recorded_and_refuse_nothing(rig: Rig) -> None:
    with Origin(responds(*[counted(b"in")] * 9)) as origin:
        apply(rig, replace(DENY, report=True))
        assert answer(rig, get(origin))[1] == b"in"
        record = rig.record(reason="reported:policy_denied")
        assert (record["status_code"], record["rule"]) == (200, "policy office[0] nothing")
        assert record["detail"].endswith('(policy office, rule "nothing")')
        apply(rig, DIRECT)
        rig.records.clear()
        assert answer(rig, get(origin))[1] == b"in"  # by the kept connection, which was reported before
        assert rig.record(status_code=200)["reason"] == ""
    key = "reported:office/nothing"
    until(lambda: rig.counters and rig.counters.decisions.get(key), "the reported rule is counted")


def test_tunnels_end_only_when_the_change_says_so(rig: Rig) -> None:
    apply(rig, DIRECT)
    with Origin(echoes) as origin, tunnel(rig, origin) as client:
        apply(rig, DENY)
        client.sendall(b"still")
        assert client.recv(5) == b"still"
        apply(rig, RuleSpec("other", destinations=("other.example",), use="deny"), ended=1)
        client.sendall(b"there")
        assert client.recv(5) == b"there"
        apply(rig, DENY, ended=2)
        assert client.recv(1) == b""
    record = rig.record(reason="policy_denied")
    assert record["rule"] == "policy office[0] nothing"


def test_a_policy_that_is_not_there_refuses_everything(rig: Rig) -> None:
    with Origin(responds(counted(b"no"))) as origin:
        rig.configure(FleetObjects(), policy="gone")
        assert b"rule=policy_denied" in answer(rig, get(origin))[0]


def test_a_policy_of_a_plan_that_has_not_come_yet_refuses_everything(rig: Rig) -> None:
    account = AccountSpec("acc_1", "alice", hash_password("secret"), policies=("of-plan",))
    login = "Proxy-Authorization: Basic YWxpY2U6c2VjcmV0"
    with Origin(responds(counted(b"in"))) as origin:
        rig.configure(FleetObjects(), policy="", accounts=(account,), auth_required=True)
        assert b"rule=policy_denied" in answer(rig, get(origin, "/", login))[0]
        of_plan = FleetObjects(policies=(policy(DIRECT, name="of-plan"),))
        rig.configure(of_plan, policy="", accounts=(account,), auth_required=True)
        assert answer(rig, get(origin, "/", login))[1] == b"in"


def test_policies_that_change_under_load_make_no_wrong_decision(rig: Rig) -> None:
    """Each of two policies allows one of two requests, by two rules each: no mixture of them allows both, or none."""
    first = RuleSpec("a", paths=("/a",), use="direct"), RuleSpec("not b", paths=("/b",), use="deny")
    second = RuleSpec("not a", paths=("/a",), use="deny"), RuleSpec("b", paths=("/b",), use="direct")
    wrong: list[bytes] = []
    over = threading.Event()

    def load(origin: Origin) -> None:
        with connect(rig) as client:
            while not over.is_set():
                for path in ("/a", "/b"):
                    client.sendall(get(origin, path))
                    head, _body = read_response(client)
                    named = b"not a" if path == "/a" else b"not b"
                    if not (head.startswith(b"HTTP/1.1 200 ") or (b" 403 " in head and named in head)):
                        wrong.append(head)

    with Origin(responds(*[counted(b"in")] * 10_000)) as origin:
        apply(rig, *first)
        threads = [threading.Thread(target=load, args=(origin,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(20):
            apply(rig, *(second if number % 2 else first))
        over.set()
        for thread in threads:
            thread.join(120)
    assert wrong == []
