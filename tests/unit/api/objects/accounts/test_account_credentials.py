"""Credentials of accounts by the API: made once, listed without secrets, revoked, and gone an hour after their end."""

from __future__ import annotations

import hashlib
import time
from contextlib import closing
from typing import Any

import pytest

from actors.accounts.table import AccountTable, digest_of
from actors.bus.messages.accounts import DropAccountUsage
from actors.bus.messages.common import METRICS, Done
from api.objects.accounts.credential_service import LISTED_AFTER_END, PURGE_BATCH, ExpiredCredentials
from api.store import StoreError, Write
from config.model.account_credentials import TTL_MAX
from config.model.fleet_accounts import FleetAccountCreate, FleetAccountUpdate
from config.text.formatting import parse_moment, timestamp_text
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.kit.wait import wait_until


@pytest.fixture
def account(api: Api) -> dict[str, Any]:
    return made_account(api, "ci")


def made_account(api: Api, username: str, **fields: Any) -> dict[str, Any]:
    made = api.services.fleet_accounts.create(FleetAccountCreate(username=username, **fields))
    return made.record.model_dump()


def path(account: dict[str, Any], *more: str) -> str:
    return "/".join((f"/accounts/{account['id']}/credentials", *more))


def mint(api: Api, account: dict[str, Any], **fields: Any) -> dict[str, Any]:
    made = api.post(path(account), {"ttl": 900, **fields}, api.token())
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json["data"]
    return found


def known(api: Api, secret: str) -> bool:
    """Whether forwarding actors find the credential: a process opens the table once, and here it is the API."""
    with closing(AccountTable(api.data.fleet)) as table:
        return table.credential(digest_of(secret)) is not None


def test_a_secret_is_shown_once_and_its_hash_is_what_stays(api: Api, account: dict[str, Any]) -> None:
    before = time.time()
    response = api.post(path(account), {"name": "job 4711", "ttl": 900}, api.token())
    after = time.time()
    assert response.headers["Cache-Control"] == "no-store"
    made, secret = response.json["data"]["credential"], response.json["data"]["secret"]
    assert secret.startswith("pfc_")
    assert len(secret) == 44
    assert secret[4:].isalnum()
    assert secret.isascii()
    assert made["prefix"] == secret[:11]
    assert before - 0.001 <= parse_moment(made["expires_at"]) - 900 <= after, "it is shown in whole milliseconds"
    assert made["account_id"] == account["id"]
    shown = api.get(path(account, made["id"]), api.token()).json["data"]["credential"]
    assert shown == made
    (document,) = api.services.account_store.find("credentials")
    assert document.body["secret_hash"] == hashlib.sha256(secret.encode()).hexdigest()
    for each in (document.body, response.json["data"]["credential"], api.get("/audit", api.token()).json):
        assert secret not in str(each)
    assert document.body["secret_hash"] not in str(api.get("/audit", api.token()).json)
    assert known(api, secret)


def test_client_addresses_of_a_credential_are_limited_for_forwarding(api: Api, account: dict[str, Any]) -> None:
    plain, limited = mint(api, account), mint(api, account, limits={"clients": 2, "clients_window": 60})
    assert plain["credential"]["limits"] == {"clients": 0, "clients_window": None}
    assert limited["credential"]["limits"] == {"clients": 2, "clients_window": 60}
    with closing(AccountTable(api.data.fleet)) as table:
        records = [table.credential(digest_of(each["secret"])) for each in (plain, limited)]
    assert [(each.clients, each.clients_window) for each in records if each is not None] == [(0, 0), (2, 60)]
    for limits, field in (({"clients": -1}, "limits.clients"), ({"clients_window": 0}, "limits.clients_window")):
        refused = api.post(path(account), {"ttl": 900, "limits": limits}, api.token())
        assert error_of(refused)[2]["field"] == field


def test_it_is_revoked_for_forwarding_before_the_response(api: Api, account: dict[str, Any]) -> None:
    made, other = mint(api, account), mint(api, account)
    revoked = api.request("DELETE", path(account, made["credential"]["id"]), api.token())
    assert revoked.json["data"] == {"id": made["credential"]["id"], "revoked": True}
    assert not known(api, made["secret"])
    assert known(api, other["secret"])
    assert api.request("DELETE", path(account, made["credential"]["id"]), api.token()).status_code == 404
    assert api.get(path(account, made["credential"]["id"]), api.token()).status_code == 404


def test_audit_and_events_name_the_credential_and_the_account(api: Api, account: dict[str, Any]) -> None:
    made = mint(api, account, name="job")["credential"]
    api.request("DELETE", path(account, made["id"]), api.token())
    for kind in ("credential.created", "credential.revoked"):
        (event,) = api.fleet.published(kind)
        about = {name: event[name] for name in ("credential_id", "name", "prefix", "account_id", "username")}
        assert about == {
            "credential_id": made["id"],
            "name": "job",
            "prefix": made["prefix"],
            "account_id": account["id"],
            "username": "ci",
        }
        assert event["expires_at"] == made["expires_at"]
        (entry,) = api.get(f"/audit?action={kind}", api.token()).json["data"]["audit"]
        assert (entry["resource"]["type"], entry["resource"]["id"]) == ("credential", made["id"])


def test_an_idempotency_key_makes_one_credential_with_one_secret(api: Api, account: dict[str, Any]) -> None:
    headers = {**api.token(), "Idempotency-Key": "job-1"}
    first, second = (api.post(path(account), {"ttl": 60}, headers) for _ in range(2))
    assert first.json == second.json
    assert second.headers["Idempotency-Replayed"] == "true"
    assert len(api.services.account_store.find("credentials")) == 1


@table(
    ("body", "field"),
    [
        ({}, "ttl"),
        ({"ttl": 60, "expires_at": "2030-01-01T00:00:00Z"}, "ttl"),
        ({"ttl": 0}, "ttl"),
        ({"ttl": TTL_MAX + 1}, "ttl"),
        ({"ttl": 1.5}, "ttl"),
        ({"ttl": True}, "ttl"),
        ({"ttl": "60"}, "ttl"),
        ({"ttl": None}, "ttl"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "2099-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
        ({"ttl": 60, "name": "x" * 101}, "name"),
        ({"ttl": 60, "name": "a\nb"}, "name"),
        ({"ttl": 60, "allow_clients": ["nowhere"]}, "allow_clients[0]"),
        ({"ttl": 60, "allow_destinations": []}, "allow_destinations"),
        ({"ttl": 60, "allow_destinations": ["a b"]}, "allow_destinations[0]"),
        ({"ttl": 60, "quota": {"bytes": -1}}, "quota.bytes"),
        ({"ttl": 60, "quota": {"bytes": 1, "period": "day"}}, "quota.period"),
        ({"ttl": 60, "max_connections": -1}, "max_connections"),
        ({"ttl": 60, "secret": "pfc_x"}, "secret"),
        ({"ttl": 60, "scope": 1}, "scope"),
    ],
)
def test_what_is_not_allowed_is_400_and_makes_nothing(
    api: Api, account: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    refused = api.post(path(account), body, api.token())
    status, _, details = error_of(refused)
    assert status == 400, refused.text
    fields = [each["field"] for each in details["errors"]] if "errors" in details else [details["field"]]
    assert field in fields
    assert api.services.account_store.find("credentials") == []


def test_all_fields_are_kept(api: Api, account: dict[str, Any]) -> None:
    end = timestamp_text(time.time() + 3600)
    fields = {
        "name": "agent",
        "expires_at": end,
        "allow_clients": ["192.0.2.0/24"],
        "allow_destinations": ["*.example.com:443", "10.0.0.0/8"],
        "quota": {"bytes": 1000},
        "max_connections": 3,
    }
    made = api.post(path(account), fields, api.token())
    assert made.status_code == 201, made.text
    assert {name: made.json["data"]["credential"][name] for name in fields} == fields
    shortest, longest = mint(api, account, ttl=1), mint(api, account, ttl=TTL_MAX)
    assert shortest["credential"]["expires_at"] < end < longest["credential"]["expires_at"]


def test_it_never_outlives_its_account(api: Api) -> None:
    end = timestamp_text(time.time() + 100)
    account = made_account(api, "short", expires_at=end)
    assert mint(api, account, ttl=3600)["credential"]["expires_at"] == end
    assert mint(api, account, ttl=10)["credential"]["expires_at"] < end


def test_no_credential_of_an_account_that_is_disabled_or_expired(api: Api, account: dict[str, Any]) -> None:
    api.services.fleet_accounts.update(account["id"], FleetAccountUpdate(enabled=False), None)
    assert "disabled" in error_of(api.post(path(account), {"ttl": 60}, api.token()))[2]["error"]
    document = api.services.account_store.get("accounts", account["id"])
    assert document is not None
    expired = {**document.body, "enabled": True, "expires_at": time.time() - 1}
    api.engine.commit([Write("accounts", account["id"], expired)])
    assert "expired" in error_of(api.post(path(account), {"ttl": 60}, api.token()))[2]["error"]


def test_the_deletion_of_an_account_takes_its_credentials_with_it(api: Api, account: dict[str, Any]) -> None:
    other = made_account(api, "other")
    gone, kept = mint(api, account), mint(api, other)
    api.services.fleet_accounts.delete(account["id"], None)
    assert not known(api, gone["secret"])
    assert known(api, kept["secret"])
    assert [each.id for each in api.services.account_store.find("credentials")] == [kept["credential"]["id"]]
    for method in ("GET", "POST"):
        body = {"json": {"ttl": 60}} if method == "POST" else {}
        assert api.request(method, path(account), api.token(), **body).status_code == 404


def test_a_credential_belongs_to_one_account(api: Api, account: dict[str, Any]) -> None:
    made, other = mint(api, account)["credential"], made_account(api, "other")
    assert api.get(path(other, made["id"]), api.token()).status_code == 404
    assert api.request("DELETE", path(other, made["id"]), api.token()).status_code == 404
    assert api.get(path(account, made["id"]), api.token()).status_code == 200


def test_a_list_is_read_page_by_page_oldest_first(api: Api, account: dict[str, Any]) -> None:
    made = [mint(api, account, name=f"job {number}")["credential"]["id"] for number in range(5)]
    mint(api, made_account(api, "other"))
    found, query = [], "?limit=2"
    while True:
        data = api.get(path(account) + query, api.token()).json["data"]
        found += [each["id"] for each in data["credentials"]]
        assert len(data["credentials"]) <= 2
        if data["next_cursor"] is None:
            break
        query = f"?limit=2&cursor={data['next_cursor']}"
    assert found == made
    for wrong in ("x", "W10", "WzEsMl0", "bnVsbA", "eyJhIjoxfQ"):
        assert error_of(api.get(f"{path(account)}?cursor={wrong}", api.token()))[2]["field"] == "cursor"


def test_expired_ones_vanish_an_hour_after_their_end_and_the_audit_trail_stays(
    api: Api, account: dict[str, Any]
) -> None:
    expired = [mint(api, account, ttl=1) for _ in range(3)]
    ends = [each.body["expires_at"] for each in api.services.account_store.find("credentials")]
    living = mint(api, account, ttl=LISTED_AFTER_END * 2)
    service = api.services.credentials
    entries = api.services.audit.head.seq
    service._clock = lambda: min(ends) + LISTED_AFTER_END - 0.5
    assert service.remove_expired() == 0
    service._clock = lambda: max(ends) + LISTED_AFTER_END + 0.5
    assert service.remove_expired() == 3
    assert [each.id for each in api.services.account_store.find("credentials")] == [living["credential"]["id"]]
    assert [known(api, each["secret"]) for each in (*expired, living)] == [False, False, False, True]
    assert api.services.audit.head.seq == entries, "to expire is no action of a caller"
    assert api.fleet.published("credential.revoked") == []


def test_the_usage_of_one_with_a_quota_goes_with_it(api: Api, account: dict[str, Any]) -> None:
    asked: list[Any] = []

    def collector(message: Any) -> Any:
        asked.append(message)
        return Done()

    api.fleet.others[METRICS] = collector
    lapsing, revoked = (mint(api, account, quota={"bytes": 1000})["credential"]["id"] for _ in range(2))
    unlimited = [mint(api, account)["credential"]["id"] for _ in range(2)]
    for each in (unlimited[0], revoked):
        assert api.request("DELETE", path(account, each), api.token()).status_code == 200
    service = api.services.credentials
    service._clock = lambda: time.time() + 900 + LISTED_AFTER_END + 1
    assert service.remove_expired() == 2
    assert asked == [DropAccountUsage((revoked,)), DropAccountUsage((lapsing,))]


def test_more_expired_ones_than_one_commit_takes_go_in_one_round(
    api: Api, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.objects.accounts.credential_service.PURGE_BATCH", 2)
    for _ in range(5):
        mint(api, account, ttl=1)
    service = api.services.credentials
    service._clock = lambda: time.time() + LISTED_AFTER_END + 2
    revision = api.services.account_store.revision
    assert service.remove_expired() == 5
    assert api.services.account_store.revision == revision + 3
    assert PURGE_BATCH > 2


def test_the_job_goes_on_after_a_full_disk(api: Api, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    mint(api, account, ttl=1)
    service, calls = api.services.credentials, []
    service._clock = lambda: time.time() + LISTED_AFTER_END + 2
    remove = service.remove_expired

    def full_at_first() -> int:
        calls.append(1)
        if len(calls) == 1:
            raise StoreError("the disk is full")
        return remove()

    monkeypatch.setattr(service, "remove_expired", full_at_first)
    job = ExpiredCredentials(service, period=0.01)
    job.start()
    try:
        wait_until(lambda: not api.services.account_store.find("credentials"), "the expired one is gone")
    finally:
        job.close()


def test_a_key_of_an_account_mints_lists_and_revokes_for_it_and_for_no_other(api: Api, account: dict[str, Any]) -> None:
    other = made_account(api, "other")
    key = api.key(permissions=["proxy.write"], scope={"accounts": [account["id"]]})
    made = api.post(path(account), {"ttl": 60}, key)
    assert made.status_code == 201, made.text
    made_id = made.json["data"]["credential"]["id"]
    assert [each["id"] for each in api.get(path(account), key).json["data"]["credentials"]] == [made_id]
    assert api.request("DELETE", path(account, made_id), key).status_code == 200
    foreign = mint(api, other)["credential"]["id"]
    for method, where in (("GET", path(other)), ("POST", path(other)), ("DELETE", path(other, foreign))):
        refused = error_of(api.request(method, where, key))
        assert refused[:2] == (403, "FORBIDDEN")
        assert "scope" in refused[2]["reason"]
    assert api.get(path(account, foreign), key).status_code == 404, "the account in the path decides"
    assert api.get(path(other, foreign), api.token()).status_code == 200


@table(
    ("body", "field"),
    [
        ({"permissions": ["proxy.read"], "scope": {"accounts": ["acc_1"]}}, "permissions"),
        ({"scope": {"accounts": ["acc_1"], "proxies": ["prx_1"]}}, "scope.proxies"),
        ({"scope": {"accounts": [1]}}, "scope.accounts[0]"),
        ({"scope": {"accounts": []}}, "scope.accounts"),
        ({"scope": {"accounts": ["acc_1"]}}, "scope.accounts[0]"),
    ],
)
def test_a_scope_of_accounts_that_is_good_for_nothing_is_refused(api: Api, body: dict[str, Any], field: str) -> None:
    details = error_of(api.post("/api-keys", {"name": "k", **body}, api.token()))[2]
    assert field in str(details)
    reader = api.add_user("reader", role="user")
    assert reader.role == "user"
    refused = api.post("/api-keys", {"name": "k", "scope": {"accounts": ["acc_1"]}}, api.token("reader"))
    assert error_of(refused)[2]["field"] == "permissions"
