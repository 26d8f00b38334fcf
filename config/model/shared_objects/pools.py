"""Pools of upstreams in requests, and their stored model.

An upstream of a pool is one of a proxy (`config.model.shared_objects.upstreams`) with labels; its password is stored
sealed as there. A pool has its upstreams itself, or a source that they are fetched from.
"""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, Field, StrictBool, StrictFloat, StrictInt, create_model

from config.files.secret_box import SecretBox
from config.model import json_patterns
from config.model.choices import PoolFormat, PoolPolicyName, ProxyProtocol
from config.model.declaration import Given, Group, Instant, LongList, gives, update
from config.model.fields import Body, Distinct, InvalidResource, example
from config.model.object_fields import Description, Labels, ObjectName
from config.model.shared_objects.lists import Interval, MaxBytes, Source, SourceGiven, changed_source
from config.model.shared_objects.upstreams import (
    ALL_UPSTREAMS,
    ONE_UPSTREAM,
    ProxyUpstream,
    UpstreamCheck,
    UpstreamInput,
    replace_upstreams,
)

VERDICTS = "verdicts"
"""The collection of verdicts in a fleet, one for each upstream that has one."""
STATUSES_MAX = 50
COOLDOWN_MAX = 86_400
ATTEMPTS_MAX = 20
BAN_MAX = 7 * 86_400
BAN_DEFAULT = 600
"""Seconds."""


class PoolUpstreamInput(UpstreamInput):
    """One upstream of a pool, in a request."""

    labels: Labels = Field(default_factory=dict)


class PoolUpstream(ProxyUpstream):
    """Stored: one upstream of a pool. `password` is sealed."""

    labels: dict[str, str] = Field(default_factory=dict)

    def view(self) -> dict[str, Any]:
        """See `ProxyUpstream`."""
        return {**super().view(), "labels": dict(self.labels)}


PoolUpstreams = Annotated[list[Annotated[PoolUpstreamInput, *ONE_UPSTREAM]], *ALL_UPSTREAMS]


def _in_order(span: list[float]) -> list[float]:
    if span[0] > span[1]:
        raise ValueError("must be two numbers of seconds, the smaller one first")
    return span


Attempts = Annotated[StrictInt, Field(ge=1, le=ATTEMPTS_MAX)]
Statuses = Annotated[
    list[Annotated[StrictInt, Field(ge=400, le=599)]], Field(max_length=STATUSES_MAX), Distinct("status")
]
_Cooldown = Annotated[
    StrictInt | StrictFloat, Field(ge=0, le=COOLDOWN_MAX), json_patterns.number(COOLDOWN_MAX, minimum=0)
]
Span = Annotated[list[_Cooldown], Field(min_length=2, max_length=2), AfterValidator(_in_order)]


BanSeconds = Annotated[StrictInt, Field(ge=1, le=BAN_MAX)]


class PoolRetry(Group):
    """When a request is tried with another upstream: after a failure to connect, or these statuses of the upstream.

    `attempts` counts all of them, the first among them.
    """

    attempts: Annotated[int, Given(Attempts)] = 5
    connect: Annotated[bool, Given(StrictBool)] = True
    statuses: Annotated[list[int], Given(Statuses)] = Field(default_factory=lambda: [407, 429, 502, 503])


def _span(shortest: float, longest: float) -> Any:
    return (Annotated[list[float], Given(Span)], [shortest, longest])


_SPANS = {"connect": _span(1, 60), "407": _span(60, 600), "429": _span(30, 300), "5xx": _span(5, 60)}
PoolCooldown: Any = create_model(
    "PoolCooldown",
    __base__=Group,
    __module__=__name__,
    __doc__="""How long an upstream is left alone after a failure of each kind: from so many seconds, doubled each time,
up to so many. `[0, 0]` is not at all.""",
    **_SPANS,
)


class UpstreamReport(Body):
    """The verdict of a client's program on an upstream. `seconds` is how long a `bad` one is left alone."""

    model_config = example({"verdict": "bad", "seconds": 600})

    verdict: Literal["bad", "good"]
    seconds: BanSeconds | None = None


class PoolSource(Source):
    """Where the upstreams of a pool come from: a `url`. Lines without a scheme are of `protocol`."""

    format: Annotated[PoolFormat, Given(PoolFormat)] = "text"
    protocol: Annotated[ProxyProtocol, Given(ProxyProtocol)] = "http"
    interval: Annotated[int, Given(Interval)] = 3600
    max_bytes: Annotated[int, Given(MaxBytes)] = 4 * 1024 * 1024

    @property
    def form(self) -> str:
        """See `Source`."""
        return f"{self.format} {self.protocol}"


@gives(PoolSource)
class PoolSourceInput(SourceGiven):
    """`source` of a request: any part; what is not given stays.

    `headers` are replaced as a whole. One whose value is null, empty or `***` keeps its value. Those stored are dropped
    with another scheme, host or port of the `url`, unless they are given anew.
    """


class Pool(BaseModel):
    """A document of the collection `pools`. It has a `source`, or `upstreams`. Times are Unix seconds."""

    id: str
    name: Annotated[str, Given(ObjectName)]
    description: Annotated[str, Given(Description)] = ""
    policy: Annotated[PoolPolicyName, Given(PoolPolicyName)] = "failover"
    upstreams: Annotated[list[PoolUpstream], LongList("upstream")] = []
    source: PoolSource | None = None
    check: UpstreamCheck = UpstreamCheck()
    retry: PoolRetry = PoolRetry()
    cooldown: PoolCooldown = PoolCooldown()
    created_at: Instant
    updated_at: Instant


_NOT_BOTH: dict[str, Any] = {"not": {"required": ["upstreams", "source"]}}


@gives(Pool)
class PoolUpdate(Body):
    """A change of a pool: what is not given stays. `upstreams` are replaced as a whole.

    They take the place of a source, and it that of upstreams.
    """

    model_config = example({"policy": "latency", "retry": {"attempts": 3}, "cooldown": {"429": [60, 600]}}, **_NOT_BOTH)

    upstream_protocol: ProxyProtocol | None = None  # before the list, whose lines without a scheme are of it
    upstreams: PoolUpstreams | None = None
    source: PoolSourceInput | None = None


class PoolCreate(PoolUpdate):
    """A new pool."""

    model_config = example(
        {
            "name": "paris",
            "description": "three exits in France",
            "policy": "latency",
            "upstreams": [
                {
                    "protocol": "http",
                    "host": "exit1.example.net",
                    "port": 3128,
                    "auth": {"username": "office", "password": "correct horse"},
                    "labels": {"country": "fr", "city": "paris"},
                }
            ],
            "check": {"interval": 30, "timeout": 5},
            "retry": {"attempts": 5, "connect": True, "statuses": [407, 429, 502, 503]},
            "cooldown": {"connect": [1, 60], "407": [60, 600], "429": [30, 300], "5xx": [5, 60]},
        },
        **_NOT_BOTH,
    )

    name: ObjectName


def new_pool(body: PoolCreate, now: float, seal: SecretBox) -> Pool:
    """The pool that `body` describes. Raises `InvalidResource`, `SecretBoxError`."""
    blank = Pool(id="pool_" + secrets.token_hex(8), name=body.name, created_at=now, updated_at=now)
    return change_pool(blank, body, now, seal)


def change_pool(pool: Pool, body: PoolUpdate, now: float, seal: SecretBox) -> Pool:
    """`pool` with the changes of `body`. Raises `InvalidResource`, `SecretBoxError`."""
    if body.upstreams is not None and body.source is not None:
        raise InvalidResource("source", "must be left out where upstreams are given")
    changed = {**update(pool, body), "updated_at": now}
    if body.upstreams is not None:
        changed["upstreams"] = replace_upstreams(pool.upstreams, body.upstreams, seal, PoolUpstream)
        changed["source"] = None
    if body.source is not None:
        changed |= {"upstreams": [], "source": changed_source(pool.source, PoolSource(), body.source, seal)}
    return pool.model_copy(update=changed)
