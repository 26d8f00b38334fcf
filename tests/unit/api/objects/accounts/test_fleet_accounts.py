"""Accounts of the fleet and plans by the API: what is stored, refused, listed and published to forwarding actors."""

from __future__ import annotations

import time
from typing import Any

import bcrypt
import pytest
from falcon.testing import Result

from actors.accounts.records import effective
from actors.accounts.table import AccountTable
from actors.bus.messages.accounts import (
    AccountActivity,
    AccountUsage,
    DropAccountUsage,
    QueryUsage,
    ResetUsage,
    UsageOfAccounts,
)
from actors.bus.messages.common import METRICS, Done
from config.model.choices import period_at
from config.passwords import COST, check_password, hash_password
from tests.kit.api_stage import Api, error_of
from tests.kit.clocks import room_in_the_day
from tests.kit.tables import table
from tests.unit.api.published import Published

ADA = {"username": "ada", "password": "secret-word"}


@pytest.fixture
def token(api: Api) -> dict[str, str]:
    return api.token()


def made(api: Api, **fields: Any) -> dict[str, Any]:
    response = api.post("/accounts", {**ADA, **fields}, api.token())
    assert response.status_code == 201, response.text
    account: dict[str, Any] = response.json["data"]["account"]
    return account


def planned(api: Api, **fields: Any) -> dict[str, Any]:
    response = api.post("/plans", {"name": "basic", **fields}, api.token())
    assert response.status_code == 201, response.text
    plan: dict[str, Any] = response.json["data"]["plan"]
    return plan


def proxy(api: Api, port: int, **fields: Any) -> str:
    body = {"name": f"p{port}", "port": port, "protocol": "http", "auth": {"enabled": True}, **fields}
    response = api.post("/proxies", body, api.token())
    assert response.status_code == 201, response.text
    return str(response.json["data"]["proxy"]["id"])


def refused(response: Result) -> tuple[str, str]:
    """Field and text of a 400."""
    status, code, details = error_of(response)
    assert (status, code) == (400, "INVALID_REQUEST"), response.text
    return details["field"], details["error"]


# --- accounts ---


def test_an_account_is_made_changed_and_deleted(api: Api, token: dict[str, str]) -> None:
    account = made(api, metadata={"customer": "4711"}, tags=["ci"])
    assert (account["proxies"], account["plan"], account["status"]) == ({"all": True}, None, "active")
    assert account["limits"] == dict.fromkeys(
        ("bandwidth_in", "bandwidth_out", "connections", "requests_per_minute", "clients", "clients_window")
    ), "nothing is said"
    assert "secret-word" not in str(account)
    path = f"/accounts/{account['id']}"
    shown = api.get(path, token)
    assert shown.json["data"]["account"] == account
    changed = api.patch(path, {"limits": {"connections": 3}, "enabled": False}, token)
    assert changed.json["data"]["account"]["limits"]["connections"] == 3
    assert changed.json["data"]["account"]["status"] == "disabled"
    assert changed.json["data"]["account"]["metadata"] == {"customer": "4711"}
    again = api.patch(path, {"limits": {"connections": 3}}, token)
    assert again.headers["ETag"] == changed.headers["ETag"] != shown.headers["ETag"]
    assert api.patch(path, {"limits": {"connections": None}}, token).json["data"]["account"]["limits"] == {
        **account["limits"]
    }
    stale = api.patch(path, {"enabled": True}, {**token, "If-Match": shown.headers["ETag"]})
    assert stale.status_code == 412
    assert api.request("DELETE", path, token).json["data"] == {"id": account["id"], "deleted": True}
    assert api.get(path, token).status_code == 404


def test_forwarding_sees_a_change_before_the_response(api: Api, token: dict[str, str]) -> None:
    plan = planned(
        api, limits={"connections": 5, "clients": 3}, quota={"bytes": 1000}, deny_destinations=["*.example.com"]
    )
    schedule = {"timezone": "Europe/Berlin", "windows": [{"days": ["mon", "sun"], "from": "22:30", "to": "24:00"}]}
    account = made(api, plan="basic", proxies={"tags": ["eu"]}, schedule=schedule, quota={"bytes": 0})
    table = Published(api)
    record = table.account(account["id"])
    spec = effective(record, table.plan(plan["id"]))
    assert check_password("secret-word", record.password_hash or "")
    assert (record.all_proxies, record.proxy_tags, record.plan) == (False, ("eu",), plan["id"])
    assert (spec.limits.connections, spec.quota, spec.deny_destinations) == (5, 0, ("*.example.com",))
    assert (spec.limits.clients, spec.limits.clients_window) == (3, 600)
    assert spec.schedule == ("Europe/Berlin", (((0, 6), 22 * 60 + 30, 1440),))
    assert spec.disclose
    change = {"limits": {"connections": 0}, "deny_destinations": None, "disclose": False}
    api.patch(f"/plans/{plan['id']}", change, token)
    spec = effective(table.account(account["id"]), table.plan(plan["id"]))
    assert (spec.limits.connections, spec.deny_destinations, spec.disclose) == (0, (), False)


def test_events_and_audit_name_the_account_and_who_did_it(api: Api, token: dict[str, str]) -> None:
    account = made(api)
    api.patch(f"/accounts/{account['id']}", {"password": "another word", "tags": ["x"]}, token)
    api.request("DELETE", f"/accounts/{account['id']}", token)
    (changed,) = api.fleet.published("account.updated")
    assert (changed["username"], changed["changed"]) == ("ada", ["password", "tags"])
    assert changed["by"]["user_id"] == api.admin.id
    assert [each["account_id"] for each in api.fleet.published("account.deleted")] == [account["id"]]
    rows = api.get("/audit", token, query_string=f"resource_id={account['id']}").json["data"]["audit"]
    assert [each["action"] for each in rows] == ["account.deleted", "account.updated", "account.created"]
    assert {each["resource"]["name"] for each in rows} == {"ada"}
    assert "another word" not in str(rows)
    assert "$2b$" not in str(rows)


@table(
    ("field", "body"),
    [
        ("username", {"username": "a/b"}),
        ("username", {"username": "a" * 129}),
        ("username", {"username": "é" * 128}),
        ("password", {"password": "é" * 128}),
        ("password", {"password": ""}),
        ("password", {"password": "pfc_" + "a" * 40}),  # forwarding would never compare it
        ("password_hash", {"password_hash": "$2b$31$" + "a" * 53}),
        ("password_hash", {"password_hash": "$2b$10$" + "a" * 21 + "u" + "a" * 31}),  # beside a password
        ("password_hash", {"password_hash": "$2b$10$" + "a" * 53, "password": None}),  # no salt that bcrypt takes
        ("proxies", {"proxies": {}}),
        ("proxies", {"proxies": {"all": False}}),
        ("proxies.ids", {"proxies": {"ids": []}}),
        ("proxies.ids[0]", {"proxies": {"ids": ["prx_none"]}}),
        ("proxies.names", {"proxies": {"names": ["x"]}}),
        ("proxies.all", {"proxies": {"all": None, "tags": ["x"]}}),
        ("plan", {"plan": "none"}),
        ("expires_at", {"expires_at": "2020-01-01T00:00:00Z"}),
        ("allow_clients[0]", {"allow_clients": ["everywhere"]}),
        ("limits.bandwidth_in", {"limits": {"bandwidth_in": 5}}),
        ("limits.speed", {"limits": {"speed": 5}}),
        ("quota.bytes", {"quota": {"period": "day"}}),
        ("quota.period", {"quota": {"bytes": 5, "period": "year"}}),
        ("allow_destinations[0]", {"allow_destinations": ["list:social"]}),
        ("deny_destinations", {"deny_destinations": ["a.example"] * 1001}),
        ("schedule.timezone", {"schedule": {"timezone": "Europe/Nowhere", "windows": []}}),
        ("schedule.timezone", {"schedule": {"timezone": "../../etc/passwd", "windows": []}}),
        ("schedule.timezone", {"schedule": {"timezone": "Europe", "windows": []}}),
        ("schedule.windows", {"schedule": {"timezone": "UTC"}}),
        (
            "schedule.windows[0].from",
            {"schedule": {"timezone": "UTC", "windows": [{"days": ["mon"], "from": "24:00", "to": "24:00"}]}},
        ),
        (
            "schedule.windows[0].days",
            {"schedule": {"timezone": "UTC", "windows": [{"days": ["mon", "mon"], "from": "01:00", "to": "02:00"}]}},
        ),
        ("tags", {"tags": ["x"] * 51}),
        ("metadata", {"metadata": {str(n): "x" for n in range(33)}}),
        ("metadata.a", {"metadata": {"a": 5}}),
        ("policy", {"policy": "strict"}),
        ("egress", {"egress": ["192.0.2.1"]}),
        ("status", {"status": "active"}),
        ("enabled", {"enabled": None}),
    ],
)
def test_a_bad_field_is_400_and_named(api: Api, token: dict[str, str], field: str, body: dict[str, Any]) -> None:
    assert refused(api.post("/accounts", {**ADA, **body}, token))[0] == field
    assert api.services.account_store.count("accounts") == 0


def test_a_hash_from_elsewhere_is_taken_and_noted(api: Api, token: dict[str, str]) -> None:
    plain = bcrypt.hashpw(b"from-htpasswd", bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
    ours = hash_password("from-an-export", 4)
    table = None
    for username, given, password in (("one", plain, "from-htpasswd"), ("two", ours, "from-an-export")):
        response = api.post("/accounts", {"username": username, "password_hash": given}, token)
        assert response.status_code == 201, response.text
        table = table or Published(api)
        stored = table.account(response.json["data"]["account"]["id"]).password_hash
        assert stored == f"plain:{given}"
        assert check_password(password, stored)
        assert not check_password("another", stored)
        assert given not in response.text


def test_a_hash_of_our_own_is_stored_as_it_is(api: Api, token: dict[str, str]) -> None:
    ours = hash_password("of-a-file", COST)
    path = "/accounts"
    made = api.post(path, {"username": "one", "password_hash": f"sha256:{ours}"}, token)
    assert made.status_code == 201, made.text
    (stored,) = api.services.account_store.find("accounts")
    assert stored.body["password_hash"] == ours
    assert check_password("of-a-file", ours)
    for wrong in (ours.replace("$10$", "$04$"), ours.replace("$2b$", "$2y$"), "sha256:" + ours, ""):
        assert (
            refused(api.post(path, {"username": "two", "password_hash": f"sha256:{wrong}"}, token))[0]
            == "password_hash"
        )


def test_an_account_without_a_password_has_credentials_only(api: Api, token: dict[str, str]) -> None:
    account = api.post("/accounts", {"username": "job"}, token).json["data"]["account"]
    assert Published(api).account(account["id"]).password_hash is None
    api.patch(f"/accounts/{account['id']}", {"password": "now-with-one"}, token)
    assert Published(api).account(account["id"]).password_hash is not None
    api.patch(f"/accounts/{account['id']}", {"password": None}, token)
    assert Published(api).account(account["id"]).password_hash is None


# --- one name, one account, for any one proxy ---


def test_two_accounts_of_one_name_for_one_proxy_are_refused_and_named(api: Api, token: dict[str, str]) -> None:
    first = made(api)
    field, text = refused(api.post("/accounts", ADA, token))
    assert field == "username"
    assert first["id"] in text
    one, two = proxy(api, 3128, tags=["eu"]), proxy(api, 3129, tags=["us"])
    api.patch(f"/accounts/{first['id']}", {"proxies": {"ids": [one]}}, token)
    second = made(api, proxies={"tags": ["us"]})
    field, text = refused(api.patch(f"/accounts/{second['id']}", {"proxies": {"tags": ["us", "eu"]}}, token))
    assert (field, first["id"] in text) == ("username", True)
    field, text = refused(api.patch(f"/proxies/{one}", {"tags": ["eu", "us"]}, token))
    assert field == "tags"
    assert all(part in text for part in (first["id"], second["id"], "ada"))
    assert api.patch(f"/proxies/{two}", {"tags": ["us", "eu"]}, token).status_code == 200


def test_a_new_proxy_may_not_know_two_accounts_of_one_name(api: Api, token: dict[str, str]) -> None:
    first, second = made(api, proxies={"tags": ["eu"]}), made(api, proxies={"tags": ["us"]})
    body = {"name": "p", "port": 3128, "protocol": "http", "tags": ["eu", "us"], "auth": {"enabled": True}}
    field, text = refused(api.post("/proxies", body, token))
    assert field == "tags"
    assert all(each["id"] in text for each in (first, second))
    assert api.fleet.reserved == {}


def test_names_of_a_proxy_itself_clash_too(api: Api, token: dict[str, str]) -> None:
    inline = {"username": "ada", "password": "of the proxy"}
    one = proxy(api, 3128, accounts=[inline])
    two = proxy(api, 3129, auth={"enabled": True, "username": "ada", "password": "x"})
    for proxy_id in (one, two):
        field, text = refused(api.post("/accounts", {**ADA, "proxies": {"ids": [proxy_id]}}, token))
        assert (field, proxy_id in text) == ("username", True)
    three = proxy(api, 3130)
    account = made(api, proxies={"ids": [three]})
    for method, path, body, where in (
        ("PATCH", f"/proxies/{three}", {"accounts": [inline]}, "accounts[0].username"),
        ("PATCH", f"/proxies/{three}", {"auth": {"username": "ada", "password": "x"}}, "auth.username"),
        ("POST", f"/proxies/{three}/accounts", inline, "username"),
    ):
        field, text = refused(api.request(method, path, token, json=body))
        assert (field, account["id"] in text) == (where, True)
    assert api.patch(f"/proxies/{one}", {"description": "names stay"}, token).status_code == 200


def test_open_proxies_of_an_account_are_in_its_warnings(api: Api, token: dict[str, str]) -> None:
    proxy(api, 3128, name="lobby", auth={"enabled": False}, tags=["eu"])
    proxy(api, 3129, tags=["de"])
    warned = api.post("/accounts", ADA, token).json["data"]["warnings"]
    assert [each["field"] for each in warned] == ["proxies"]
    assert "'lobby'" in warned[0]["warning"]
    assert "p3129" not in warned[0]["warning"]
    eve = api.post("/accounts", {"username": "eve", "proxies": {"tags": ["de"]}}, token)
    assert eve.json["data"]["warnings"] == []
    (warned,) = api.post("/accounts", {"username": "max", "proxies": {"tags": ["us"]}}, token).json["data"]["warnings"]
    assert (warned["field"], "no proxy with these ids or tags" in warned["warning"]) == ("proxies", True)


def test_forwarding_gets_the_tags_of_a_proxy(api: Api) -> None:
    assert api.fleet.desired[proxy(api, 3128, tags=["eu", "us"])].tags == ("eu", "us")


# --- pages ---


def test_pages_and_filters(api: Api, token: dict[str, str]) -> None:
    planned(api)
    one = proxy(api, 3128, tags=["eu"])
    api.post("/accounts", {"username": "carl", "proxies": {"tags": ["eu"]}, "plan": "basic"}, token)
    api.post("/accounts", {"username": "bob", "proxies": {"tags": ["us"]}, "tags": ["ci"]}, token)
    api.post("/accounts", {"username": "ada", "enabled": False, "metadata": {"crm": "Ä-17"}}, token)

    def names(query: str = "") -> list[str]:
        found, cursor = [], ""
        while True:
            response = api.get("/accounts", token, query_string=f"limit=1&{query}{cursor}")
            assert response.status_code == 200, response.text
            data = response.json["data"]
            found += [each["username"] for each in data["accounts"]]
            if data["next_cursor"] is None:
                assert not data["has_more"]
                return found
            cursor = f"&cursor={data['next_cursor']}"

    assert names() == ["ada", "bob", "carl"]
    assert names("sort=-username") == ["carl", "bob", "ada"]
    assert names("sort=created_at") == ["carl", "bob", "ada"]
    by_id = [each["username"] for each in sorted(_all(api), key=lambda each: str(each["id"]))]
    for sort in ("usage", "last_seen_at"):
        assert (names(f"sort={sort}"), names(f"sort=-{sort}")) == (by_id, by_id[::-1])
    assert names(f"proxy={one}") == ["ada", "carl"]
    assert names("plan=basic") == ["carl"]
    assert names("tag=ci") == ["bob"]
    assert names("status=disabled") == ["ada"]
    assert names("q=%C3%A4-1") == ["ada"]
    cursor = api.get("/accounts", token, query_string="limit=1").json["data"]["next_cursor"]
    assert refused(api.get("/accounts", token, query_string=f"q=a&cursor={cursor}"))[0] == "cursor"
    assert refused(api.get("/accounts", token, query_string="cursor=AAAA"))[0] == "cursor"
    assert refused(api.get("/accounts", token, query_string="plan=none"))[0] == "plan"
    assert api.get("/accounts", token, query_string="proxy=prx_none").status_code == 404


def _all(api: Api) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = api.get("/accounts", api.token()).json["data"]["accounts"]
    return found


def test_usage_that_cannot_be_read_is_503_when_it_is_sorted_by(api: Api, token: dict[str, str]) -> None:
    made(api)
    file = api.services.data.usage
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"no database at all" * 100)
    assert error_of(api.get("/accounts", token, query_string="sort=-usage"))[0] == 503
    assert api.get("/accounts", token).status_code == 200


def test_a_account_past_its_end_is_expired(api: Api, token: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    account = made(api, expires_at="2090-01-01T00:00:00Z")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 100 * 366 * 86400)
    token = api.token()
    assert api.get(f"/accounts/{account['id']}", token).json["data"]["account"]["status"] == "expired"
    listed = api.get("/accounts", token, query_string="status=expired").json["data"]["accounts"]
    assert [each["id"] for each in listed] == [account["id"]]


# --- usage ---


def test_usage_is_that_of_the_collector_in_the_period_of_the_quota(api: Api, token: dict[str, str]) -> None:
    room_in_the_day()
    since = period_at("month", time.time())[0]
    used = AccountActivity(AccountUsage("month", since, 700, 400), connections=3, last_seen=5.0, client_ip="192.0.2.7")
    asked: list[Any] = []

    def collector(message: Any) -> Any:
        asked.append(message)
        return UsageOfAccounts({first["id"]: used}) if isinstance(message, QueryUsage) else Done()

    planned(api, quota={"bytes": 1000, "period": "month"})
    first, second = made(api, plan="basic"), made(api, username="eve", quota={"bytes": 0})
    assert (first["usage"], first["active_connections"]) == (None, None), "the collector does not reply"
    api.fleet.others[METRICS] = collector
    one, two = api.get("/accounts", token).json["data"]["accounts"]
    assert asked[-1] == QueryUsage({first["id"]: "month", second["id"]: "total"})
    assert (one["status"], one["usage"]["bytes"], one["usage"]["remaining"]) == ("quota_reached", 1100, 0)
    assert one["usage"]["quota"] == 1000, "not what was used and what is left"
    assert (one["last_seen_at"], one["last_client_ip"]) == ("1970-01-01T00:00:05.000Z", "192.0.2.7")
    assert (two["status"], two["usage"]["bytes"], two["usage"]["remaining"]) == ("active", 0, None)
    assert two["usage"]["quota"] is None
    assert (two["last_seen_at"], two["last_client_ip"], two["active_connections"]) == (None, None, 0)

    def listed(query: str) -> list[str]:
        return [each["id"] for each in api.get("/accounts", token, query_string=query).json["data"]["accounts"]]

    assert listed("status=quota_reached") == [first["id"]]
    assert listed("status=active") == [second["id"]]
    assert api.post(f"/accounts/{first['id']}/reset-usage", headers=token).status_code == 200
    assert ResetUsage((first["id"],)) in asked
    rows = api.get("/audit", token, query_string="action=account.usage_reset").json["data"]["audit"]
    assert [each["resource"]["id"] for each in rows] == [first["id"]]
    api.request("DELETE", f"/accounts/{second['id']}", token)
    assert asked[-1] == DropAccountUsage((second["id"],))


# --- plans ---


def test_a_plan_is_made_changed_and_deleted(api: Api, token: dict[str, str]) -> None:
    plan = planned(api, limits={"connections": 5}, self_service={"password": True})
    assert plan["self_service"] == {"password": True, "credentials": False}
    path = f"/plans/{plan['id']}"
    changed = api.patch(path, {"name": "gold", "limits": {"bandwidth_in": 2048}}, token).json["data"]["plan"]
    assert (changed["name"], changed["limits"]["connections"], changed["limits"]["bandwidth_in"]) == ("gold", 5, 2048)
    assert changed["disclose"] is True
    assert api.patch(path, {"disclose": False}, token).json["data"]["plan"]["disclose"] is False
    assert api.patch(path, {"description": "x"}, token).json["data"]["plan"]["disclose"] is False
    for bad in (None, "no", 0):
        assert refused(api.patch(path, {"disclose": bad}, token))[0] == "disclose"
    assert api.patch(path, {"limits": None}, token).json["data"]["plan"]["limits"]["connections"] is None
    assert refused(api.post("/plans", {"name": "gold"}, token))[0] == "name"
    assert refused(api.post("/plans", {"name": "x", "policy": "strict"}, token)) == (
        "policy",
        "there is no policy 'strict'",
    )
    assert refused(api.patch(path, {"self_service": {"password": None}}, token))[0] == "self_service.password"
    assert api.get("/plans", token).json["data"]["total"] == 1
    assert api.request("DELETE", path, token).status_code == 200
    assert api.get(path, token).status_code == 404


def test_a_plan_in_use_can_not_be_deleted(api: Api, token: dict[str, str]) -> None:
    plan = planned(api)
    account = made(api, plan="basic")
    made(api, username="eve", plan="basic")
    field, text = refused(api.request("DELETE", f"/plans/{plan['id']}", token))
    assert (field, "2 accounts" in text) == (None, True)
    api.patch(f"/plans/{plan['id']}", {"name": "gold"}, token)
    shown = api.get(f"/accounts/{account['id']}", token).json["data"]["account"]
    assert shown["plan"] == "gold", "a renamed plan stays the account's"
    for account_id in api.get("/accounts", token).json["data"]["accounts"]:
        api.patch(f"/accounts/{account_id['id']}", {"plan": None}, token)
    assert api.request("DELETE", f"/plans/{plan['id']}", token).status_code == 200


def test_a_key_of_some_proxies_may_not_see_accounts(api: Api) -> None:
    key = api.key(scope={"proxies": [proxy(api, 3128)]})
    for path in ("/accounts", "/plans"):
        assert error_of(api.get(path, key))[:2] == (403, "FORBIDDEN")


def test_the_table_is_there_for_a_reader_after_the_end(api: Api) -> None:
    account = made(api)
    api.end()
    reader = AccountTable(api.data.fleet)
    assert [each.id for each in reader.accounts_named("ada")] == [account["id"]]
    reader.close()
    api.open()
    api.start()


# --- certificates ---

PRINT = ":".join(["AB"] * 32)


def test_entries_for_certificates_are_stored_in_one_form_and_published(api: Api, token: dict[str, str]) -> None:
    given = ["CN= build-7 ", "DNS:Build-7.example", "URI:spiffe://example/build", f"SHA256:{PRINT}", "CN=build-7"]
    account = made(api, certificates=given)
    normal = ["CN=build-7", "DNS:build-7.example", "URI:spiffe://example/build", f"SHA256:{'ab' * 32}"]
    assert account["certificates"] == normal
    assert Published(api).account(account["id"]).certificates == tuple(normal)
    changed = api.patch(f"/accounts/{account['id']}", {"certificates": []}, token)
    assert changed.json["data"]["account"]["certificates"] == []
    assert Published(api).account(account["id"]).certificates == ()


@table("entry", ["build-7", "CN=", "cn=a", "DNS:a b", "URI:nothing", "SHA256:abcd", "O=us", "CN=\0"])
def test_what_is_no_entry_for_a_certificate_is_refused(api: Api, token: dict[str, str], entry: str) -> None:
    field, _error = refused(api.post("/accounts", {**ADA, "certificates": ["CN=a", entry]}, token))
    assert field == "certificates[1]"


def test_one_certificate_is_one_account_for_any_one_proxy(api: Api, token: dict[str, str]) -> None:
    first, second = proxy(api, 3301), proxy(api, 3302)
    ada = made(api, certificates=[f"SHA256:{PRINT}"], proxies={"ids": [first]})
    bob = {"username": "bob", "password": "secret-word", "certificates": ["CN=b", f"SHA256:{'ab' * 32}"]}
    both = api.post("/accounts", {**bob, "proxies": {"ids": [first]}}, token)
    assert refused(both)[0] == "certificates[1]"
    assert ada["id"] in refused(both)[1]
    other = api.post("/accounts", {**bob, "proxies": {"ids": [second]}}, token)
    assert other.status_code == 201, other.text
    path = f"/accounts/{other.json['data']['account']['id']}"
    assert refused(api.patch(path, {"proxies": {"all": True}}, token))[0] == "certificates[1]"
    api.patch(f"/accounts/{ada['id']}", {"certificates": []}, token)
    assert api.patch(path, {"proxies": {"all": True}}, token).status_code == 200
    api.request("DELETE", path, token)
    assert api.patch(f"/accounts/{ada['id']}", {"certificates": ["CN=b"]}, token).status_code == 200


def test_tags_of_a_proxy_by_which_two_accounts_of_one_certificate_meet_are_refused(
    api: Api, token: dict[str, str]
) -> None:
    made(api, certificates=["CN=a"], proxies={"tags": ["red"]})
    made(api, username="bob", certificates=["CN=a"], proxies={"tags": ["blue"]})
    both = proxy(api, 3303, tags=["red"])
    field, error = refused(api.patch(f"/proxies/{both}", {"tags": ["red", "blue"]}, token))
    assert (field, "'CN=a'" in error) == ("tags", True)
