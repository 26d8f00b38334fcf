"""What was refused to a credential, for those who may make it and may not read records."""

from __future__ import annotations

from typing import Any

import pytest

from actors.bus.messages.common import LOGS
from actors.bus.messages.records import CountLogs, LogCounts, LogPage
from actors.logs.counting import port_of
from actors.logs.record_schema import empty_record
from api.objects.accounts.credential_operations import REFUSALS_MAX
from config.model.fleet_accounts import FleetAccountCreate
from config.model.plans import PlanCreate
from tests.kit.api_stage import Api
from tests.kit.tables import table


def record(target: str, **fields: Any) -> dict[str, Any]:
    return {**empty_record(), "proxy_id": "prx_1", "timestamp": 1_769_860_800.0, "target_url": target, **fields}


class Indexer:
    """Played here: it has records by reason, newest first."""

    def __init__(self, api: Api, **records: list[dict[str, Any]]) -> None:
        self.records = records
        self.asked: list[Any] = []
        self.more: tuple[int, int] | None = None
        api.fleet.others[LOGS] = self._reply

    def _reply(self, message: Any) -> Any:
        self.asked.append(message)
        if isinstance(message, CountLogs):
            reasons = tuple((reason, len(rows), 0, 0) for reason, rows in self.records.items())
            return LogCounts(0, (), (), {"reason": reasons}, exact=True)
        rows = tuple({**row, "reason": message.reason} for row in self.records[message.reason])
        return LogPage(rows, len(rows), next=self.more)


@pytest.fixture
def account(api: Api) -> str:
    return api.services.fleet_accounts.create(FleetAccountCreate(username="ci")).record.id


def refusals(api: Api, account: str, query: str = "") -> dict[str, Any]:
    """As a key gets them that may do no more than make credentials of the account."""
    key = api.key(permissions=["proxy.write"], scope={"accounts": [account]})
    reply = api.get(f"/accounts/{account}/credentials/crd_1/refusals{query}", key)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json["data"]
    return found


def test_refusals_are_counted_by_target_reason_and_rule(api: Api, account: str) -> None:
    indexer = Indexer(
        api,
        policy_denied=[
            record("b.example:443", rule="one", detail="the newest"),
            record("http://a.example/x", rule="one"),
            record("b.example:443", rule="one", detail="older"),
            record("b.example:443", rule="two"),
        ],
        dns_error=[record("gone.example:443")],
    )
    found = refusals(api, account)
    assert [(each["host"], each["port"], each["rule"], each["records"]) for each in found["refusals"]] == [
        ("b.example", 443, "one", 2),
        ("a.example", 80, "one", 1),
        ("b.example", 443, "two", 1),
    ], "what failed was not refused"
    assert found["refusals"][0]["detail"] == "the newest"
    assert found["complete"]
    asked = indexer.asked[-1]
    assert (asked.user, asked.credential, asked.reason) == ("ci", "crd_1", "policy_denied")


def test_names_in_the_handshake_are_counted_by_what_was_wrong_with_them(api: Api, account: str) -> None:
    details = ("not_tls: no handshake", "mismatch: it names c.example", "mismatch: it names d.example")
    Indexer(api, tls_name_denied=[record("b.example:443", rule="one", detail=each) for each in details])
    found = api.get(f"/accounts/{account}/credentials/crd_1/refusals", api.token()).json["data"]["refusals"]
    assert [(each["detail"], each["records"]) for each in found] == [(details[1], 2), (details[0], 1)]


def test_a_plan_that_does_not_disclose_rules_keeps_them_from_the_key_of_a_runner(api: Api) -> None:
    api.services.objects["plans"].create(PlanCreate(name="mute", disclose=False))
    account = api.services.fleet_accounts.create(FleetAccountCreate(username="ci", plan="mute")).record.id
    Indexer(api, policy_denied=[record("b.example:443", rule=each, detail="a rule") for each in ("one", "two")])
    (one,) = refusals(api, account)["refusals"]
    assert (one["rule"], one["detail"], one["records"]) == ("", "", 2)
    found = api.get(f"/accounts/{account}/credentials/crd_1/refusals", api.token()).json["data"]["refusals"]
    assert [each["rule"] for each in found] == ["one", "two"]


def test_nothing_refused_is_an_empty_list(api: Api, account: str) -> None:
    Indexer(api)
    assert refusals(api, account, "?start_time=2026-01-31T12:00:00Z") == {"refusals": [], "complete": True}


def test_more_than_can_be_read_is_not_complete(api: Api, account: str) -> None:
    indexer = Indexer(api, policy_denied=[record("a.example:443")])
    indexer.more = (1, 1)
    assert not refusals(api, account)["complete"]
    Indexer(api, policy_denied=[record(f"a.example:{port}") for port in range(1, REFUSALS_MAX + 2)])
    found = refusals(api, account)
    assert (len(found["refusals"]), found["complete"]) == (REFUSALS_MAX, False)


@table(
    ("target", "port"),
    [
        ("a.example:8443", 8443),
        ("[2001:db8::1]:443", 443),
        ("http://a.example/x:1", 80),
        ("https://user:pw@a.example/", 443),
        ("http://[2001:db8::1]:81/", 81),
        ("a.example", None),
        ("a.example:123456", None),
        ("", None),
    ],
)
def test_the_port_of_a_target(target: str, port: int | None) -> None:
    assert port_of(target) == port


def test_the_snippets_of_an_account_are_for_a_key_that_only_makes_its_credentials(api: Api, account: str) -> None:
    for name, port in (("one", 4000), ("two", 4001)):
        fields = {"name": name, "port": port, "host": "0.0.0.0", "protocol": "http", "auth": {"enabled": True}}
        assert api.post("/proxies", fields, api.token()).status_code == 201
    key = {**api.key(permissions=["proxy.write"], scope={"accounts": [account]}), "Host": "proxy.example.com"}
    found = api.get(f"/accounts/{account}/snippets", key).json["data"]
    assert [each["snippets"]["url"] for each in found["proxies"]] == [
        "http://ci:PASSWORD@proxy.example.com:4000",
        "http://ci:PASSWORD@proxy.example.com:4001",
    ]
    assert api.get(f"/accounts/{account}/snippets?proxy=two", key).json["data"]["total"] == 1


@table("other", ["", "%20", "*", "acc_1"])
def test_what_is_no_credential_is_not_asked_for(api: Api, account: str, other: str) -> None:
    """Records of requests by the account's password have an empty one."""
    indexer = Indexer(api, policy_denied=[record("a.example:443")])
    key = api.key(permissions=["proxy.write"], scope={"accounts": [account]})
    assert api.get(f"/accounts/{account}/credentials/{other}/refusals", key).status_code == 404
    assert indexer.asked == []
