"""Views of lists, pools and policies."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import create_model

from api.openapi.schemas.base import Moment, ResponseModel
from api.openapi.schemas.derived import shows
from api.openapi.schemas.fleet_accounts import ScheduleView
from api.openapi.schemas.proxies import UpstreamView, Warned
from config.model.access import Mode
from config.model.choices import ListKind, TlsNameCheck
from config.model.lists import DestinationList, ListSource
from config.model.policies import Policy
from config.model.pools import Pool, PoolSource


class _Times(ResponseModel):
    created_at: Moment
    updated_at: Moment


class _Warned(ResponseModel):
    warnings: list[Warned]


# --- lists --------------------------------------------------------------------------------------------------------


@shows(ListSource, but=("url", "file", "headers"))
class ListSourceView(ResponseModel):
    """Where the entries of a list come from: a `url`, or a `file`. `interval` is the seconds between two requests.

    The values of `headers` are `***`, and null in an export.
    """

    url: str | None = None
    file: str | None = None
    headers: dict[str, str | None] | None = None


class SkippedLine(ResponseModel):
    """A line of a source that is no entry."""

    line: int
    text: str
    reason: str


class ListStatus(ResponseModel):
    """The content of a list, or of a pool with a source: how many entries, when it was fetched and is fetched next.

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
    """Whether a list matches a target, and the entry that does.

    Of a database it is whether it knows the address, the network that it knows, and where that is.
    """

    matches: bool
    entry: str | None
    kind: ListKind
    country: str | None = None
    asn: int | None = None


class Refreshing(ResponseModel):
    """A list, or the upstreams of a pool, are being fetched."""

    id: str
    refreshing: Literal[True]


# --- pools --------------------------------------------------------------------------------------------------------


class PoolUpstreamView(UpstreamView):
    """An upstream of a pool."""

    labels: dict[str, str]


class PoolUpstreamStatus(ResponseModel):
    """What all proxies and the checks know of an upstream of a pool.

    `state` is `up`, `down` or `unknown` (not used or checked yet) since `since`. `failures` are those since it worked
    last, `latency` the milliseconds that clients wait for it lately. It is left alone until `cooldown_until` after a
    failure of the kind `cooldown`, and until `banned_until` after a report of a client's program.
    """

    name: str
    state: Literal["unknown", "up", "down"]
    since: Moment | None
    latency: float | None
    failures: int
    cooldown: Literal["connect", "407", "429", "5xx"] | None
    cooldown_until: Moment | None
    banned_until: Moment | None
    last_error: str | None
    last_error_at: Moment | None
    checks: int
    checks_failed: int


@shows(PoolSource, but=("url", "headers"))
class PoolSourceView(ResponseModel):
    """Where the upstreams of a pool come from. `interval` is the seconds between two requests.

    The values of `headers` are `***`, and null in an export.
    """

    url: str
    headers: dict[str, str | None] | None = None


class PoolSummary(ResponseModel):
    """How many upstreams of a pool are up, down, or not known yet; and how many are left alone for a time.

    `usable` are those that are up and not left alone. `state` is the pool in a word: `up`, `degraded` (some can't be
    used), `down` (none can), or `unknown` (nothing is known of those that may work). `used` says whether an active
    proxy can use the pool, `checked` whether its upstreams are checked, which those of an unused pool are not; null
    while the supervisor does not reply. `source` says how the last fetch went, null without one.
    """

    state: Literal["up", "degraded", "down", "unknown"]
    up: int
    down: int
    unknown: int
    cooling_down: int
    banned: int
    usable: int
    used: bool | None
    checked: bool | None
    source: ListStatus | None


class PoolStatus(PoolSummary):
    """The state of a pool, and of each of its upstreams in their order."""

    upstreams: list[PoolUpstreamStatus]


class PoolChecking(ResponseModel):
    """The upstreams of a pool are being checked; all of that ends within `seconds`."""

    id: str
    checking: Literal[True]
    seconds: float


class PoolUpstreamReported(ResponseModel):
    """The state of the upstream after the report."""

    upstream: PoolUpstreamStatus


@shows(Pool, but=("upstreams",))
class _Pool(_Times):
    source: PoolSourceView | None
    upstream_count: int


class ListedPool(_Pool):
    """A pool in a list of them."""

    status: PoolSummary


class PoolView(_Pool):
    """A pool, without the passwords of its upstreams."""

    status: PoolStatus
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
    tunnel: bool | None = None
    params: dict[str, str] | None = None
    schedule: ScheduleView | None = None
    clients: list[str] | None = None
    listen_ports: list[int | str] | None = None


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
    tls_name: TlsNameCheck | None = None
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
