"""What an account may say itself, or else inherits from its plan; for both in requests, and in the store.

In both, null is nothing said: an account inherits it, a plan leaves it open. 0, `[]` and `{"bytes": 0}` say "none".
A policy of the account is the exception: it is asked before that of the plan, which holds as well.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field

from config.model import json_patterns
from config.model.accounts import Bandwidth, ClientNumber, ClientsWindow, Number, Quota
from config.model.declaration import Given, Group
from config.model.fields import NULLABLE, InvalidResource, each_entry
from config.model.object_fields import ObjectName
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
    """Limits over all proxies, 0 for none; null says nothing. Bandwidth in bytes per second; `in` is of clients.

    `clients` is how many client addresses (with IPv6 their /64) may use an account within `clients_window` seconds,
    600 where nothing says it.
    """

    bandwidth_in: Annotated[int | None, Given(Bandwidth), NULLABLE] = None
    bandwidth_out: Annotated[int | None, Given(Bandwidth), NULLABLE] = None
    connections: Annotated[int | None, Given(Number), NULLABLE] = None
    requests_per_minute: Annotated[int | None, Given(Number), NULLABLE] = None
    clients: Annotated[int | None, Given(ClientNumber), NULLABLE] = None
    clients_window: Annotated[int | None, Given(ClientsWindow), NULLABLE] = None

    def view(self) -> dict[str, Any]:
        """Null says nothing."""
        return self.model_dump()


class RuleQuota(Quota):
    """The quota: bytes in both directions together in each period, over all proxies; 0 for none."""


class StoredRules(BaseModel):
    """The rules of an account or a plan, as they are stored."""

    limits: Annotated[RuleLimits, NULLABLE] = RuleLimits()
    quota: Annotated[RuleQuota | None, NULLABLE] = None
    allow_destinations: Annotated[list[str] | None, Given(RuleDestinations), NULLABLE] = None
    deny_destinations: Annotated[list[str] | None, Given(RuleDestinations), NULLABLE] = None
    schedule: Annotated[Schedule | None, Given(ScheduleInput), NULLABLE] = None
    policy: Annotated[str | None, Given(ObjectName), NULLABLE] = None


def refuse_no_quota(stored: StoredRules, body: Any) -> None:
    """Raise `InvalidResource` for a part of a quota where there is none."""
    if stored.quota is None and body.quota is not None and body.quota.bytes is None:
        raise InvalidResource("quota.bytes", "is required")
