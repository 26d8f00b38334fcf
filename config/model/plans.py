"""Plans in requests, and their stored model: rules that accounts inherit."""

from __future__ import annotations

import secrets
from typing import Annotated

from pydantic import StrictBool

from config.model.account_rules import StoredRules, refuse_no_quota
from config.model.declaration import Given, Group, Instant, gives, update
from config.model.fields import NULLABLE, Body, Name, example
from config.model.object_fields import Description
from config.model.proxy_parts import Egress, refuse_foreign

READ_ONLY_FIELDS = frozenset({"id", "accounts", "created_at", "updated_at"})


class SelfService(Group):
    """What holders of the plan's accounts may do themselves."""

    password: Annotated[bool, Given(StrictBool)] = False
    credentials: Annotated[bool, Given(StrictBool)] = False


class Plan(StoredRules):
    """A document of the collection `plans`. Times are Unix seconds."""

    id: str
    name: Annotated[str, Given(Name)]
    description: Annotated[str, Given(Description)] = ""
    self_service: SelfService = SelfService()
    egress: Annotated[list[str] | None, Given(Egress), NULLABLE] = None
    disclose: Annotated[bool, Given(StrictBool)] = True
    """Whether clients get to know which policy, rule and list refuse a request."""
    created_at: Instant
    updated_at: Instant


@gives(Plan)
class PlanUpdate(Body):
    """A change of a plan: what is not given stays."""

    model_config = example({"limits": {"connections": 20}, "quota": {"bytes": 50_000_000_000, "period": "month"}})


class PlanCreate(PlanUpdate):
    """A new plan."""

    model_config = example(
        {
            "name": "basic",
            "description": "ten gigabytes a month",
            "limits": {"bandwidth_out": 1_000_000, "connections": 10, "clients": 3},
            "quota": {"bytes": 10_000_000_000, "period": "month"},
            "deny_destinations": ["*.example.net"],
            "schedule": {
                "timezone": "Europe/Berlin",
                "windows": [{"days": ["mon", "tue", "wed", "thu", "fri"], "from": "08:00", "to": "18:00"}],
            },
            "egress": ["2001:db8:7::/48"],
            "self_service": {"password": True},
        }
    )

    name: Name


def new_plan(body: PlanCreate, now: float) -> Plan:
    """The plan that `body` describes. Raises `InvalidResource`."""
    blank = Plan(id="pln_" + secrets.token_hex(8), name=body.name, created_at=now, updated_at=now)
    return change_plan(blank, body, now)


def change_plan(plan: Plan, body: PlanUpdate, now: float) -> Plan:
    """`plan` with the changes of `body`. Raises `InvalidResource`."""
    refuse_no_quota(plan, body)
    changed = update(plan, body)
    refuse_foreign(changed.get("egress") or (), "egress")
    return plan.model_copy(update={**changed, "updated_at": now})
