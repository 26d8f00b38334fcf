"""Views of the explanation of a decision about a request."""

from __future__ import annotations

from typing import Literal

from api.openapi.schemas.base import ResponseModel
from config.model.choices import BindPolicy


class Target(ResponseModel):
    """The target of a request."""

    host: str
    port: int


class JudgedAddress(ResponseModel):
    """The decision about one address of a target."""

    address: str
    decision: Literal["allow", "deny"]
    reason: str
    rule: str


class ExplainedRule(ResponseModel):
    """What a rule of a policy has to do with a request; `unknown` while the target's address would decide."""

    policy: str
    index: int
    name: str
    matches: Literal["yes", "no", "unknown"]
    why: str
    use: str | None
    mode: Literal["enforce", "report"]


class ExplainedSource(ResponseModel):
    """Where a request would leave from, by which `rule`; addresses that are drawn at random are null."""

    rule: str
    policy: BindPolicy
    entries: list[str]
    ipv4: str | None
    ipv6: str | None


class ExplainedHeaders(ResponseModel):
    """The header fields that the proxy and rules set and remove in a plain request; names to remove in lower case."""

    set: dict[str, str]
    remove: list[str]


class ExplainedName(ResponseModel):
    """How a user name with parameters is understood.

    `ttl` is seconds, of the session; `labels` choose an upstream, `marks` are what only rules of policies ask for, and
    `unknown` has no effect. `problem` says why what stands behind an account is no parameters.
    """

    account: str
    session: str | None
    ttl: float
    rotate: bool
    labels: dict[str, str]
    marks: dict[str, str]
    unknown: list[str]
    problem: str


class ExplainedUpstream(ResponseModel):
    """An upstream that would not be chosen, and why."""

    name: str
    why: str


class ExplainedUpstreams(ResponseModel):
    """Which upstream a request would go through, of the `pool` or, without one, of the proxy itself.

    `left_out` are those that would not be chosen, the first hundred of them; `usable` of all `total` may be.
    """

    pool: str | None
    policy: str
    chosen: str | None
    total: int
    usable: int
    left_out: list[ExplainedUpstream]


class ExplainedTlsName(ResponseModel):
    """What becomes of the name in the TLS handshake of a tunnel.

    `check` is in force, by `rule`. `port_checked` is false for a port that is none of `tls_ports`, and for plain HTTP.
    `name` is the one that was asked about, `kind` what it is judged to be, and `detail` says what is wrong with it.
    """

    check: Literal["off", "record", "match", "allowed"]
    rule: str
    port_checked: bool
    name: str | None
    kind: Literal["match", "mismatch", "no_name"] | None
    detail: str


class Explanation(ResponseModel):
    """The decision about a request: its reason, and the rule and stage that decide; ids of account and credential.

    `name` is null where the user name has no parameters. `assumed` is what only the client knows.
    """

    decision: Literal["allow", "deny"]
    reason: str
    rule: str
    stage: str
    mode: Literal["enforce", "report"]
    target: Target
    addresses: list[JudgedAddress]
    rules: list[ExplainedRule]
    headers: ExplainedHeaders
    account: str | None
    credential: str | None
    source: ExplainedSource | None
    upstreams: ExplainedUpstreams | None
    name: ExplainedName | None
    tls_name: ExplainedTlsName
    assumed: list[Literal["password", "credential"]]
