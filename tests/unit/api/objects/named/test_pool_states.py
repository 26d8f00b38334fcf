"""What the API shows of the upstreams of pools, and reports of clients' programs."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote

import pytest

from actors.bus.codec import unpack
from actors.bus.messages.common import SUPERVISOR
from actors.bus.messages.specs import CheckPool, PoolSpec
from actors.pools.slot import UpstreamSlot
from actors.pools.state import pool_state
from api.objects.named.pool_kind import POOLS
from api.queries.metrics.prometheus import Parts, PoolMetrics, expose
from config.model.shared_objects.pools import BAN_MAX
from tests.kit.api_stage import Api, error_of
from tests.kit.tables import table
from tests.unit.api.audit_reader import rows

UPSTREAMS = [
    {"protocol": "http", "host": f"up{number}.example", "port": 3128, "name": f"up{number}"} for number in range(3)
]


@pytest.fixture
def pool(api: Api) -> dict[str, Any]:
    made = api.post("/pools", {"name": "paris", "upstreams": UPSTREAMS}, api.token())
    assert made.status_code == 201
    view: dict[str, Any] = made.json["data"]["pool"]
    return view


def slots(api: Api) -> tuple[UpstreamSlot, ...]:
    """What a proxy sees that has the pool as it is."""
    sent = [each for each in api.services.shared_objects.messages() if each.key == "pool:paris"]
    return pool_state(api.run.pools, unpack(PoolSpec, sent[0].packed)).slots


def status(api: Api) -> dict[str, Any]:
    shown: dict[str, Any] = api.get("/pools/paris", api.token()).json["data"]["pool"]["status"]
    return shown


def report(api: Api, upstream: str, **body: Any) -> Any:
    return api.post(f"/pools/paris/upstreams/{upstream}/report", body, api.token())


def test_nothing_is_known_of_a_pool_that_is_not_in_use(api: Api, pool: dict[str, Any]) -> None:
    shown = pool["status"]
    assert {name: value for name, value in shown.items() if name != "upstreams"} == {
        "state": "unknown",
        "up": 0,
        "down": 0,
        "unknown": 3,
        "cooling_down": 0,
        "banned": 0,
        "source": None,
        "usable": 0,
        "used": False,
        "checked": False,
    }
    assert shown["upstreams"][0] == {
        **dict.fromkeys(("since", "latency", "cooldown", "cooldown_until", "banned_until", "last_error"), None),
        "name": "up0",
        "state": "unknown",
        "last_error_at": None,
        "failures": 0,
        "checks": 0,
        "checks_failed": 0,
    }
    assert not api.run.pools.exists()


def test_what_proxies_have_found_out_is_shown(api: Api, pool: dict[str, Any]) -> None:
    now = time.monotonic()
    first, second, _ = slots(api)
    first.succeeded(now)
    first.record_latency(time.monotonic(), 0.0125)
    second.failed(now, "429", "status", "it responds 429")
    shown = status(api)
    assert [each["state"] for each in shown["upstreams"]] == ["up", "unknown", "unknown"]
    assert shown["upstreams"][0]["latency"] == 12.5
    assert shown["upstreams"][1]["cooldown"] == "429"
    assert shown["upstreams"][1]["last_error"] == "it responds 429"
    assert shown["upstreams"][1]["last_error_at"] < shown["upstreams"][1]["cooldown_until"]
    listed = api.get("/pools", api.token()).json["data"]["pools"][0]["status"]
    counts = {"up": 1, "down": 0, "unknown": 2, "cooling_down": 1, "banned": 0, "usable": 1}
    assert listed == {"state": "up", **counts, "used": False, "checked": False, "source": None}


def test_usable_are_those_that_are_up_and_not_left_alone(api: Api, pool: dict[str, Any]) -> None:
    """One that is down cools down, too, and so is in both numbers; what is not known is not usable."""
    now, found = time.monotonic(), []
    up, down, other = slots(api)
    for learn in (
        lambda: up.succeeded(now),
        lambda: down.failed(now, "connect", "unreachable", "refused"),
        lambda: other.succeeded(now),
        lambda: other.failed(now, "429", "status", "it responds 429"),
        lambda: up.failed(now, "connect", "unreachable", "refused"),
        lambda: other.ban(now + 60),
    ):
        learn()
        shown = status(api)
        found.append((shown["up"], shown["down"], shown["cooling_down"], shown["usable"], shown["state"]))
    assert found == [
        (1, 0, 0, 1, "up"),
        (1, 1, 1, 1, "degraded"),
        (2, 1, 1, 2, "degraded"),
        (2, 1, 2, 1, "degraded"),
        (1, 2, 3, 0, "down"),
        (1, 2, 2, 0, "down"),
    ]
    totals = api.services.pool_states.totals()
    assert totals == {"total": 1, "by_state": {"down": 1}, "upstreams": 3, "usable": 0}


def test_a_pool_says_whether_a_proxy_uses_it_and_it_is_checked(api: Api, pool: dict[str, Any]) -> None:
    api.fleet.pools_in_use = ("paris",)
    assert [status(api)[name] for name in ("used", "checked")] == [True, True]
    api.patch("/pools/paris", {"check": {"enabled": False}}, api.token())
    assert [status(api)[name] for name in ("used", "checked")] == [True, False]
    api.fleet.gone.add(SUPERVISOR)
    assert [status(api)[name] for name in ("used", "checked")] == [None, False]


def test_a_check_is_asked_for_and_the_response_says_when_it_has_ended(api: Api, pool: dict[str, Any]) -> None:
    asked = api.post("/pools/paris/check", None, api.token())
    assert asked.json["data"] == {"id": pool["id"], "checking": True, "seconds": 6.03}
    assert (SUPERVISOR, CheckPool("pool:paris")) in api.fleet.received
    assert api.post("/pools/lyon/check", None, api.token()).status_code == 404
    api.fleet.gone.add(SUPERVISOR)
    assert api.post("/pools/paris/check", None, api.token()).status_code == 500


def test_a_bad_upstream_is_left_alone_by_all_at_once_and_used_again_when_it_is_good(
    api: Api, pool: dict[str, Any]
) -> None:
    used = slots(api)[1]
    banned = report(api, "up1", verdict="bad", seconds=60).json["data"]["upstream"]
    assert (banned["name"], banned["banned_until"] is not None) == ("up1", True)
    now = time.monotonic()
    assert not used.eligible(now + 50)
    assert used.eligible(now + 61)
    assert status(api)["banned"] == 1
    assert report(api, "up1", verdict="good").json["data"]["upstream"]["banned_until"] is None
    assert used.eligible(time.monotonic())


def test_a_ban_comes_before_the_first_use_and_outlives_the_api(api: Api, pool: dict[str, Any]) -> None:
    assert report(api, "up2", verdict="bad").status_code == 200
    api.start()
    assert status(api)["upstreams"][2]["banned_until"] is not None
    assert not slots(api)[2].eligible(time.monotonic() + 590)


def test_the_state_follows_a_change_of_the_pool_and_ends_with_it(api: Api, pool: dict[str, Any]) -> None:
    report(api, "up2", verdict="bad")
    api.patch("/pools/paris", {"upstreams": [UPSTREAMS[2], UPSTREAMS[0]]}, api.token())
    assert [each["banned_until"] is not None for each in status(api)["upstreams"]] == [True, False]
    assert (api.run.pools / pool["id"]).exists()
    api.request("DELETE", "/pools/paris", api.token())
    assert not (api.run.pools / pool["id"]).exists()


def test_files_of_pools_that_are_gone_are_deleted(api: Api, pool: dict[str, Any]) -> None:
    report(api, "up0", verdict="bad")
    other = api.run.pools / "pool_0123456789abcdef"
    other.write_bytes(b"")
    api.services.pool_states.forget_deleted()
    assert not other.exists()
    assert (api.run.pools / pool["id"]).exists()


@table(
    ("body", "field"),
    [
        ({"verdict": "bad", "seconds": 0}, "seconds"),
        ({"verdict": "bad", "seconds": BAN_MAX + 1}, "seconds"),
        ({"verdict": "bad", "seconds": "60"}, "seconds"),
        ({"verdict": "ugly"}, "verdict"),
        ({}, "verdict"),
        ({"verdict": "bad", "until": 1}, "until"),
    ],
)
def test_a_report_that_says_something_else_is_refused(
    api: Api, pool: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    code, _, details = error_of(report(api, "up0", **body))
    assert (code, details["field"]) == (400, field)
    assert status(api)["banned"] == 0


@pytest.mark.parametrize("name", [None, "a/b", "a/report", "..", "a%2fb", "a?b"])
def test_an_upstream_is_reported_by_whatever_name_it_has(api: Api, name: str | None) -> None:
    """One that was given none has its URL for one."""
    upstream = {"protocol": "http", "host": "up.example.net", "port": 3128, **({} if name is None else {"name": name})}
    made = api.post("/pools", {"name": "paris", "upstreams": [upstream]}, api.token()).json["data"]["pool"]
    name = made["upstreams"][0]["name"]
    found = report(api, quote(name, safe=""), verdict="bad")
    assert (found.status_code, found.json["data"]["upstream"]["name"]) == (200, name)
    assert report(api, quote(f"{name}/x", safe=""), verdict="bad").status_code == 404
    assert api.get(f"/pools/paris/upstreams/{quote(name, safe='')}/report", api.token()).status_code == 405


@pytest.mark.parametrize("path", ["/pools/paris/upstreams/other/report", "/pools/other/upstreams/up0/report"])
def test_a_report_of_nothing_that_is_there_is_404(api: Api, pool: dict[str, Any], path: str) -> None:
    assert api.post(path, {"verdict": "bad"}, api.token()).status_code == 404


def test_a_report_is_in_the_audit_trail_and_an_event(api: Api, pool: dict[str, Any]) -> None:
    report(api, "up0", verdict="bad", seconds=90)
    report(api, "up0", verdict="good")
    found = [each for each in rows(api) if each["action"] == "pool.upstream_reported"]
    assert [each["details"] for each in found] == [
        {"upstream": "up0", "verdict": "good"},
        {"upstream": "up0", "verdict": "bad", "seconds": 90},
    ]
    assert found[0]["resource"] == {"type": "pool", "id": pool["id"], "name": "paris"}
    (banned,), (unbanned,) = (api.fleet.published(f"upstream.{kind}") for kind in ("banned", "unbanned"))
    assert (banned["pool"], banned["upstream"], banned["seconds"], banned["by"]["type"]) == (
        "paris",
        "up0",
        90.0,
        "user",
    )
    assert unbanned["upstream"] == "up0"


def test_prometheus_has_the_state_of_pools(api: Api, pool: dict[str, Any]) -> None:
    slots(api)[0].succeeded(time.monotonic())
    report(api, "up1", verdict="bad")
    record = api.services.shared_objects.get(POOLS, "paris").record
    parts = Parts(pools=[PoolMetrics(record.id, record.name, api.services.pool_states.summary(record), True)])
    text = expose((), {}, {}, None, parts=parts).decode()
    labels = f'name="paris",pool="{pool["id"]}"'
    assert f'proxyfleet_pool_upstreams{{{labels},state="up"}} 1.0' in text
    assert f"proxyfleet_pool_bans_total{{{labels}}} 1.0" in text
    assert f'proxyfleet_pool_upstreams_left_alone{{by="ban",{labels}}} 1.0' in text


def test_a_state_that_cannot_be_written_is_no_ban(api: Api, pool: dict[str, Any]) -> None:
    api.run.pools.parent.mkdir(exist_ok=True)
    api.run.pools.write_text("a file in place of the folder")
    assert report(api, "up0", verdict="bad").status_code == 500
    assert status(api)["banned"] == 0
