"""Views of lists, pools and policies."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import create_model

from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.derived import shows
from api.openapi.schemas.fleet_accounts import ScheduleView
from api.openapi.schemas.proxies import UpstreamView, Warned
from config.model.access import Mode
from config.model.choices import ListKind
from config.model.lists import DestinationList, ListSource
from config.model.policies import Policy
from config.model.pools import Pool


class _Times(ResponseModel):
    created_at: Moment
    updated_at: Moment


class _Warned(ResponseModel):
    warnings: list[Warned]


# --- lists --------------------------------------------------------------------------------------------------------


@shows(ListSource)
class ListSourceView(ResponseModel):
    """Where the entries of a list come from. `interval` is the seconds between two requests."""


class SkippedLine(ResponseModel):
    """A line of a source that is no entry."""

    line: int
    text: str
    reason: str


class ListStatus(ResponseModel):
    """The content of a list: how many entries, and of one with a source when it was fetched and is fetched next.

    `last_error` says why the last fetch failed, null after one that did not. `skipped` counts the lines of the source
    that are no entries; the first few are examples.
    """

    entries: int
    fetched_at: Moment | None
    next_at: Moment | None
    last_error: str | None
    skipped: int
    skipped_examples: list[SkippedLine]


@shows(DestinationList, but=("entries",))
class ListedList(_Times):
    """A list in a list of them."""

    source: ListSourceView | None
    entry_count: int
    status: ListStatus


class ListView(ListedList):
    """A list. `entries` are those that it has itself."""

    entries: list[str]


class OneList(_Warned):
    """A list."""

    list: ListView


class ListChecked(ResponseModel):
    """Whether a list matches a target, and the entry that does."""

    matches: bool
    entry: str | None
    kind: ListKind


class ListRefreshing(ResponseModel):
    """A list is being fetched."""

    id: str
    refreshing: Literal[True]


# --- pools --------------------------------------------------------------------------------------------------------


class PoolUpstreamView(UpstreamView):
    """An upstream of a pool."""

    labels: dict[str, str]


@shows(Pool, but=("upstreams",))
class ListedPool(_Times):
    """A pool in a list of them."""

    upstream_count: int


class PoolView(ListedPool):
    """A pool, without the passwords of its upstreams."""

    upstreams: list[PoolUpstreamView]


class OnePool(_Warned):
    """A pool."""

    pool: PoolView


# --- policies -----------------------------------------------------------------------------------------------------


class RuleMatchView(ResponseModel):
    """What a rule matches: all that is there."""

    accounts: list[str] | None = None
    destinations: list[str] | None = None
    methods: list[str] | None = None
    paths: list[str] | None = None
    params: dict[str, str] | None = None
    schedule: ScheduleView | None = None
    clients: list[str] | None = None


_HEADERS: dict[str, Any] = {"set": (dict[str, str] | None, None), "remove": (list[str] | None, None)}
ActionHeadersView: Any = create_model(
    "ActionHeadersView", __base__=ResponseModel, __doc__="Header fields that a rule sets and removes.", **_HEADERS
)


class ActionLimitsView(ResponseModel):
    """Limits of a rule."""

    bandwidth_in: int | None = None
    bandwidth_out: int | None = None
    connections: int | None = None
    requests_per_minute: int | None = None


class RuleActionView(ResponseModel):
    """What a rule does."""

    use: str | None = None
    reason: str | None = None
    egress: list[str] | None = None
    headers: ActionHeadersView | None = None
    limits: ActionLimitsView | None = None


class RuleView(ResponseModel):
    """A rule of a policy."""

    name: str
    match: RuleMatchView
    action: RuleActionView
    mode: Mode


@shows(Policy, but=("rules",))
class ListedPolicy(_Times):
    """A policy in a list of them."""

    rule_count: int


class PolicyView(ListedPolicy):
    """A policy: the first rule that matches decides."""

    rules: list[RuleView]


class OnePolicy(_Warned):
    """A policy. `warnings` name rules that do less than they seem to."""

    policy: PolicyView


class _Page(ResponseModel):
    has_more: bool
    next_cursor: str | None


class ListPage(_Page):
    """A page of lists, without their entries. `next_cursor` leads to the next one; it is null on the last."""

    lists: list[ListedList]


class PoolPage(_Page):
    """A page of pools, without their upstreams. `next_cursor` leads to the next one; it is null on the last."""

    pools: list[ListedPool]


class PolicyPage(_Page):
    """A page of policies, without their rules. `next_cursor` leads to the next one; it is null on the last."""

    policies: list[ListedPolicy]


PAGES: dict[str, type[ResponseModel]] = {"lists": ListPage, "pools": PoolPage, "policies": PolicyPage}
ONE: dict[str, type[ResponseModel]] = {"lists": OneList, "pools": OnePool, "policies": OnePolicy}
"""The models of responses by the collection of a kind."""
