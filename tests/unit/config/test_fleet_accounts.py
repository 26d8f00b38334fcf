"""Accounts of the fleet and plans as models: what a change keeps, and what stored data become for forwarding."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from config.model.fields import InvalidResource
from config.model.fleet_accounts import (
    FleetAccount,
    FleetAccountCreate,
    FleetAccountUpdate,
    change_fleet_account,
    new_fleet_account,
)
from config.model.plans import (
    Plan,
    PlanCreate,
    PlanUpdate,
    Schedule,
    ScheduleInput,
    change_plan,
    new_plan,
    schedule_data,
)
from config.passwords import check_password
from tests.kit.tables import table

NIGHT = {"days": ["fri", "sat"], "from": "22:00", "to": "06:00"}
DAY = {"days": ["mon"], "from": "00:00", "to": "24:00"}


def made(**fields: Any) -> FleetAccount:
    return new_fleet_account(FleetAccountCreate.model_validate({"username": "ada", **fields}), "", 1.0)


def changed(account: FleetAccount, plan: str = "", **fields: Any) -> FleetAccount:
    return change_fleet_account(account, FleetAccountUpdate.model_validate(fields), plan, 2.0)


def test_limits_go_key_by_key_and_null_inherits_again() -> None:
    account = made(limits={"connections": 5, "bandwidth_in": 0}, quota={"bytes": 10, "period": "day"})
    account = changed(account, limits={"connections": None, "requests_per_minute": 7}, quota={"bytes": 20})
    assert account.limits.model_dump() == {
        "bandwidth_in": 0,
        "bandwidth_out": None,
        "connections": None,
        "requests_per_minute": 7,
        "clients": None,
        "clients_window": None,
    }
    assert account.quota is not None
    assert (account.quota.bytes, account.quota.period) == (20, "day")
    account = changed(account, limits=None, quota=None, allow_destinations=[])
    assert (set(account.limits.model_dump().values()), account.quota, account.allow_destinations) == ({None}, None, [])


def test_what_is_not_given_stays() -> None:
    account = made(password="a", metadata={"x": "1"}, schedule={"timezone": "UTC", "windows": [DAY]}, tags=["t"])
    after = changed(account, enabled=False)
    assert after.model_copy(update={"enabled": True, "updated_at": 1.0}) == account
    assert changed(account, password="a").password_hash == account.password_hash, "the present one is no change"
    assert changed(account, password=None).password_hash is None
    assert check_password("b", changed(account, password="b").password_hash or "")


def test_a_stored_document_is_read_again_and_an_older_one_has_defaults() -> None:
    account = made(proxies={"ids": ["prx_1"], "tags": ["eu"]}, schedule={"timezone": "UTC", "windows": [NIGHT]})
    assert FleetAccount.model_validate(account.model_dump(mode="json")) == account
    least = FleetAccount.model_validate({"id": "a", "username": "u", "created_at": 1.0, "updated_at": 1.0})
    assert (least.proxies.all, least.enabled, least.plan, least.socks4_by_name) == (True, True, "", False)
    assert least.proxies.view() == {"all": True}
    assert account.proxies.view() == {"ids": ["prx_1"], "tags": ["eu"]}


def test_a_schedule_is_windows_in_minutes_for_forwarding() -> None:
    given = ScheduleInput.model_validate({"timezone": "Europe/Berlin", "windows": [NIGHT, DAY]})
    stored = given.stored()
    assert Schedule.model_validate(stored.model_dump(mode="json")) == stored
    assert schedule_data(stored.model_dump()) == ("Europe/Berlin", (((4, 5), 1320, 360), ((0,), 0, 1440)))
    assert schedule_data({"timezone": "UTC", "windows": []}) == ("UTC", ())


@table(
    "wrong",
    [
        {**DAY, "days": []},
        {**DAY, "days": ["monday"]},
        {**DAY, "from": "8:00"},
        {**DAY, "to": "24:01"},
        {**DAY, "x": 1},
    ],
)
def test_a_bad_window_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ScheduleInput.model_validate({"timezone": "UTC", "windows": [wrong]})


def test_an_end_that_has_passed_may_stay_but_not_be_set() -> None:
    account = made().model_copy(update={"expires_at": 1.5})
    assert changed(account, expires_at="1970-01-01T00:00:01.500Z").expires_at == 1.5
    with pytest.raises(InvalidResource):
        changed(account, expires_at="1970-01-01T00:00:01Z")
    assert changed(account, expires_at=None).expires_at is None


def test_a_plan_leaves_open_what_it_does_not_say() -> None:
    plan = new_plan(PlanCreate.model_validate({"name": "basic", "deny_destinations": ["a.example"]}), 1.0)
    assert (plan.quota, plan.allow_destinations, plan.deny_destinations) == (None, None, ["a.example"])
    after = change_plan(plan, PlanUpdate.model_validate({"self_service": {"credentials": True}}), 2.0)
    assert (after.self_service.password, after.self_service.credentials) == (False, True)
    assert Plan.model_validate(after.model_dump(mode="json")) == after
