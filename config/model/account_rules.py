"""What an account may say itself, or else inherits from its plan; for both in requests, and in the store.

In both, null is nothing said: an account inherits it, a plan leaves it open. 0, `[]` and `{"bytes": 0}` say "none".
A policy of the account is the exception: it is asked before that of the plan, which holds as well.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, StrictInt

from config.model import json_patterns
from config.model.accounts import Bandwidth, Number, Quota
from config.model.declaration import Group
from config.model.fields import NULLABLE, Body, InvalidResource, each_entry
from config.model.object_fields import ObjectName
from config.model.quotas import Period
from config.model.schedules import Schedule, ScheduleInput
from config.net.entries import read_entry
from config.net.names import in_a_labels

DESTINATIONS_MAX = 1_000
"""Entries in one list."""

RuleDestinations = Annotated[
    list[str],
    Field(max_length=DESTINATIONS_MAX),
    BeforeValidator(each_entry(read_entry, in_a_labels)),
    json_patterns.texts(json_patterns.WRITTEN_DESTINATION, DESTINATIONS_MAX),
]


class RuleLimits(Group):
    """Limits of an account on each proxy, 0 for none. Bandwidth is bytes per second; `in` is what clients send."""

    bandwidth_in: int | None = None
    bandwidth_out: int | None = None
    connections: int | None = None
    requests_per_minute: int | None = None

    def view(self) -> dict[str, Any]:
        """Null says nothing."""
        return self.model_dump()


class StoredRules(BaseModel):
    """The rules of an account or a plan, as they are stored."""

    limits: RuleLimits = RuleLimits()
    quota: Quota | None = None
    allow_destinations: list[str] | None = None
    deny_destinations: list[str] | None = None
    schedule: Schedule | None = None
    policy: str | None = None


class RuleLimitsInput(Body):
    """Limits of an account on each proxy, 0 for none. Bandwidth is bytes per second; `in` is what clients send."""

    bandwidth_in: Annotated[Bandwidth | None, NULLABLE] = None
    bandwidth_out: Annotated[Bandwidth | None, NULLABLE] = None
    connections: Annotated[Number | None, NULLABLE] = None
    requests_per_minute: Annotated[Number | None, NULLABLE] = None


class RuleQuotaInput(Body):
    """The quota: bytes in both directions together in each period, over all proxies; 0 for none."""

    bytes: Annotated[StrictInt, Field(ge=0, le=10**18)] | None = None
    period: Period | None = None


class RulesInput(Body):
    """The rules in a request. What is not given stays; null is nothing said."""

    limits: Annotated[RuleLimitsInput | None, NULLABLE] = None
    quota: Annotated[RuleQuotaInput | None, NULLABLE] = None
    allow_destinations: Annotated[RuleDestinations | None, NULLABLE] = None
    deny_destinations: Annotated[RuleDestinations | None, NULLABLE] = None
    schedule: Annotated[ScheduleInput | None, NULLABLE] = None
    policy: Annotated[ObjectName | None, NULLABLE] = None


def changed_rules(stored: StoredRules, body: RulesInput) -> dict[str, Any]:
    """The fields of `stored` that `body` changes. Raises `InvalidResource`."""
    changed: dict[str, Any] = {}
    given = body.model_fields_set
    if "limits" in given:
        changed["limits"] = _limits(stored.limits, body.limits)
    if "quota" in given:
        changed["quota"] = _quota(stored.quota, body.quota)
    for name in ("allow_destinations", "deny_destinations", "policy"):
        if name in given:
            changed[name] = getattr(body, name)
    if "schedule" in given:
        changed["schedule"] = None if body.schedule is None else body.schedule.stored()
    return changed


def _limits(stored: RuleLimits, given: RuleLimitsInput | None) -> RuleLimits:
    """Key by key; null altogether says nothing about any of them."""
    return RuleLimits() if given is None else stored.model_copy(update=given.model_dump(exclude_unset=True))


def _quota(stored: Quota | None, given: RuleQuotaInput | None) -> Quota | None:
    if given is None:
        return None
    if given.bytes is None and stored is None:
        raise InvalidResource("quota.bytes", "is required")
    return (stored or Quota()).model_copy(update=given.model_dump(exclude_none=True))
