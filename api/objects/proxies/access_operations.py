"""The explanation of a decision about a request, as the forwarding actor of the proxy gives it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StrictStr

from actors.bus.messages.common import API, SUPERVISOR, Done, Failed, explainer_name, forwarding_name
from actors.bus.messages.forwarding import (
    Explain,
    ExplainedAddress,
    NameExplanation,
    RequestExplanation,
    RuleExplanation,
    SourceExplanation,
    TlsNameExplanation,
    UpstreamExplanation,
    UpstreamsExplanation,
)
from actors.bus.messages.specs import ListRef, PolicySpec
from actors.bus.messages.supervision import StartExplainer
from actors.forwarding.access.policy import without_address
from actors.forwarding.protocols.failures import Refused
from actors.forwarding.protocols.http.targets import read_target
from api.bus_bridge import Bridge, NodeMissing, checked, is_asleep, request
from api.call import Call, Reply
from api.engine.operation import PROXY, post, resource
from api.engine.responses import NodesMeta, ResponseModel, mirrors
from api.errors import Denied, Invalid, MissingPermission
from api.http.query import NodesAlone
from api.objects.named.list_kind import LISTS
from api.objects.named.policy_kind import POLICIES, policy_spec
from api.objects.nodes.asked_nodes import AskedNodes
from api.security.caller import Caller
from config.model import json_patterns
from config.model.accounts import Moment
from config.model.choices import BindPolicy
from config.model.fields import Body, InvalidResource, Port, Text, example
from config.model.object_fields import Named, ObjectName
from config.model.proxies import ProxyRecord
from config.model.shared_objects.policies import Policy, PolicyCreate, Rules, new_policy
from config.net.addresses import is_plain_address, plain
from config.net.entries import one_address
from config.net.names import is_host_name


class Target(ResponseModel):
    """The target of a request."""

    host: str
    port: int


@mirrors(ExplainedAddress)
class JudgedAddress(ResponseModel):
    """The decision about one address of a target."""

    decision: Literal["allow", "deny"]


@mirrors(RuleExplanation, ("use",))
class ExplainedRule(ResponseModel):
    """What a rule of a policy has to do with a request; `unknown` while the target's address would decide."""

    matches: Literal["yes", "no", "unknown"]
    mode: Literal["enforce", "report"]


@mirrors(SourceExplanation, ("ipv4", "ipv6"))
class ExplainedSource(ResponseModel):
    """Where a request would leave from, by which `rule`; addresses that are drawn at random are null."""

    policy: BindPolicy


class ExplainedHeaders(ResponseModel):
    """The header fields that the proxy and rules set and remove in a plain request; names to remove in lower case."""

    set: dict[str, str]
    remove: list[str]


@mirrors(NameExplanation)
class ExplainedName(ResponseModel):
    """How a user name with parameters is understood.

    `ttl` is seconds, of the session; `labels` choose an upstream, `marks` are what only rules of policies ask for, and
    `unknown` has no effect. `problem` says why what stands behind an account is no parameters.
    """


@mirrors(UpstreamExplanation)
class ExplainedUpstream(ResponseModel):
    """An upstream that would not be chosen, and why."""


@mirrors(UpstreamsExplanation, ("pool", "chosen"))
class ExplainedUpstreams(ResponseModel):
    """Which upstream a request would go through, of the `pool` or, without one, of the proxy itself.

    `left_out` are those that would not be chosen, the first hundred of them; `usable` of all `total` may be.
    """

    left_out: list[ExplainedUpstream]


@mirrors(TlsNameExplanation)
class ExplainedTlsName(ResponseModel):
    """What becomes of the name in the TLS handshake of a tunnel.

    `check` is in force, by `rule`. `port_checked` is false for a port that is none of `tls_ports`, and for plain HTTP.
    `name` is the one that was asked about, `kind` what it is judged to be, and `detail` says what is wrong with it.
    """

    check: Literal["off", "record", "match", "allowed"]
    kind: Literal["match", "mismatch", "no_name"] | None


class Explanation(ResponseModel):
    """The decision about a request: its reason, and the rule and stage that decide; ids of account and credential.

    `name` is null where the user name has no parameters. `assumed` is what only the client knows. `node` has decided,
    in a fleet of several.
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
    node: str | None = None
    meta: NodesMeta | None = None


def _target(text: str) -> str:
    scheme, separator, _rest = text.partition("://")
    if separator and scheme.lower() not in ("http", "https"):
        raise ValueError("must be an http or https URL, host:port, or a host")
    try:
        read_target(text)
    except Refused as refused:
        raise ValueError(refused.failure.detail) from refused
    return text


def _tls_name(text: str) -> str:
    """Empty for a handshake without a name. A final dot is ignored, as in tunnels."""
    name = text.removesuffix(".")
    if text and not (is_host_name(name) or (is_plain_address(name))):
        raise ValueError(
            "must be a host as it stands in handshakes (xn--… for other letters than ASCII), or empty for none"
        )
    return name


def _method(text: str) -> str:
    if not text.isascii() or not text.isalpha():
        raise ValueError("must be a method, such as GET")
    return text


Address = Annotated[StrictStr, AfterValidator(one_address), json_patterns.text(json_patterns.ADDRESS)]


class PolicyDraft(Body):
    """A policy that need not be stored."""

    name: ObjectName
    rules: Rules


class ExplainBody(Body):
    """A client, by default at the caller's address, and a target. `method` is for http URLs, GET by default.

    `tls_name` is the name in the TLS handshake of a tunnel; empty: the handshake has none. `at` is when, by default
    now.

    `draft` is judged in place of the policy of its name; where the proxy and the account's plan name another one, in
    place of the proxy's.
    """

    model_config = example(
        {"client_ip": "192.0.2.7", "target": "https://example.com/", "user": "alice", "tls_name": "example.com"}
    )

    client_ip: Address | None = None
    target: Annotated[StrictStr, Text(1, 2048, _target, pattern=json_patterns.TARGET, lengths=False)]
    user: Annotated[StrictStr, Field(min_length=1, max_length=1024)] | None = None
    credential: Annotated[StrictStr, Field(min_length=1, max_length=64)] | None = None
    method: Annotated[StrictStr, Text(0, 64, _method, pattern="[A-Za-z]+", minLength=1)] | None = None
    draft: PolicyDraft | None = None
    listen_port: Port | None = None
    tls_name: Annotated[StrictStr, Text(0, 254, _tls_name, pattern=json_patterns.TLS_NAME, lengths=False)] | None = None
    at: Moment | None = None


def explain_access(call: Call) -> Reply:
    """Explain the decision about a request.

    Evaluates the access rules, limits and the egress guard for a client and a target, without sending anything to
    the target. The response names the rule that decides. `client_ip` is the caller's address by default. `user` is
    taken to have the right password, or
    `credential` (an id) to have come with its secret; without both the client has no credentials. `method` is that
    of a request for an http URL. `rules` are all rules of the policies that apply, each with why it does or does
    not match. With `draft`, which needs `proxy.write`, a policy is tried before it is stored. `source` is where the
    request would leave from, if the configuration says so. `headers` are the fields that are added, set and removed
    in an allowed request for an http URL. `listen_port` is the port of the proxy that the client comes to, by
    default its first. `name` says how a user name with parameters is understood, and `assumed` is what the
    client is taken to know. `tls_name` of the response is what becomes of the name in the TLS handshake of a tunnel;
    with `tls_name` in the request that name is judged. Schedules and ends of rules, accounts and credentials are judged
    as of `at`, by default now; what they have used is that of now. In a fleet the asked node decides if it runs the
    proxy, else another one that does.
    """
    proxy = call.services.proxies.get(call.params["proxy_id"])
    if proxy.record.status == "inactive":
        raise Invalid("status", "the proxy is inactive, so it decides nothing; start it first")
    body = call.body
    draft = _messages(call, None if body.draft is None else _policy(call, body.draft))
    if body.listen_port is not None and body.listen_port not in proxy.record.ports:
        raise Invalid("listen_port", f"must be a port of the proxy, {proxy.record.ports}")
    port, client = body.listen_port or proxy.record.port, body.client_ip or str(plain(call.address))
    asked = client, body.user, body.target, body.credential, body.method or "GET"
    query = Explain(*asked, *draft, port, body.tls_name, body.at or 0.0)
    node_id, reply = _explained(call.services.bridge, call.nodes, proxy.record, query)
    if isinstance(reply, Failed):
        raise Invalid(reply.field, reply.error)
    if not read_target(body.target).literal and not call.caller.may("proxy.write"):
        reply = _without_addresses(reply)
    view = _view(_within_scope(call.caller, body.draft, reply))
    assumed, node = _assumed(proxy.record, body, reply), call.nodes.of_record(call.nodes.at(node_id, API))
    return Reply({**view, "assumed": assumed, **node})


def _assumed(proxy: ProxyRecord, body: ExplainBody, found: RequestExplanation) -> list[str]:
    """What only the client knows; nothing where the request is refused before that is looked at."""
    if not proxy.auth.enabled or found.stage in ("client", "user"):
        return []
    if body.credential is not None:
        return ["credential"]
    return [] if proxy.protocol == "socks4" else ["password"]


def _explained(bridge: Bridge, nodes: AskedNodes, proxy: ProxyRecord, query: Explain) -> tuple[str, Any]:
    """The first node that replies, by its id, and its reply: of the proxy's process, or where it sleeps of one for this
    alone. Raises `PeerUnavailable`, and `Invalid` if none of the nodes runs it."""
    if not nodes.are_several:
        return nodes.own_id, _explained_at(bridge, nodes, nodes.own_id, proxy.id, query)
    for node_id in nodes.that_run(proxy):
        reply = _explained_at(bridge, nodes, node_id, proxy.id, query)
        if not isinstance(reply, NodeMissing):
            return node_id, reply
        nodes.note(reply.actor, reply)
    nodes.refuse_missing()
    raise Invalid("node", "the proxy runs on none of the nodes that are asked")


def _explained_at(bridge: Bridge, nodes: AskedNodes, node_id: str, proxy_id: str, query: Explain) -> Any:
    name = nodes.at(node_id, forwarding_name(proxy_id))
    reply = bridge.ask(name, query)
    if not is_asleep(reply):
        return checked(name, reply, RequestExplanation, Failed, NodeMissing)
    request(bridge, nodes.at(node_id, SUPERVISOR), StartExplainer(proxy_id), Done)
    return request(bridge, nodes.at(node_id, explainer_name(proxy_id)), query, RequestExplanation, Failed)


def _policy(call: Call, draft: PolicyDraft) -> Policy:
    """The policy that would be stored. The process of the proxy compiles it: only for those who may give it one."""
    if not call.caller.may("proxy.write"):
        raise MissingPermission("proxy.write", call.caller.key is not None)
    try:
        policy = new_policy(PolicyCreate(name=draft.name, rules=draft.rules), time.time())
        _refuse_beyond(call.caller, POLICIES.refers(policy))
        call.services.shared_objects.refuse_unknown(POLICIES.refers(policy))
    except InvalidResource as error:
        raise InvalidResource(f"draft.{error.field}", error.error) from error
    except Invalid as error:
        raise Invalid(f"draft.{error.field}", error.error) from error
    return policy


def _refuse_beyond(caller: Caller, names: Iterable[Named]) -> None:
    """Raise `Denied` for the first pool or list of a draft that the scope of the caller's key doesn't name."""
    for each in names:
        if not caller.reaches(each.collection, each.name):
            raise Denied(f"draft.{each.field}: the {each.kind} {each.name!r} is not in the key's scope")


def _within_scope(caller: Caller, draft: PolicyDraft | None, explanation: RequestExplanation) -> RequestExplanation:
    """Without rules of policies and upstreams of pools that the scope of the caller's key doesn't name."""
    upstreams, given = explanation.upstreams, None if draft is None else draft.name
    if upstreams is not None and upstreams.pool and not caller.reaches("pools", upstreams.pool):
        upstreams = None
    rules = (each for each in explanation.rules if each.policy == given or caller.reaches("policies", each.policy))
    return replace(explanation, upstreams=upstreams, rules=tuple(rules))


def _messages(call: Call, policy: Policy | None) -> tuple[PolicySpec | None, tuple[ListRef, ...]]:
    """The policy and the lists that it names, as the forwarding actor gets them."""
    if policy is None:
        return None, ()
    named = {each.name for each in POLICIES.refers(policy) if each.collection == LISTS.collection}
    return policy_spec(policy, 0), tuple(map(call.services.shared_objects.list_ref, sorted(named)))


def _without_addresses(explanation: RequestExplanation) -> RequestExplanation:
    """Without the addresses that a name resolves to inside: not every caller who may read may see them."""
    rule = without_address(explanation.host) if explanation.stage == "egress_guard" else explanation.rule
    return replace(explanation, rule=rule, addresses=())


def _source_view(source: SourceExplanation) -> dict[str, Any]:
    return {**asdict(source), "ipv4": source.ipv4 or None, "ipv6": source.ipv6 or None}


def _upstreams_view(upstreams: UpstreamsExplanation) -> dict[str, Any]:
    return {**asdict(upstreams), "pool": upstreams.pool or None, "chosen": upstreams.chosen or None}


def _view(explanation: RequestExplanation) -> dict[str, Any]:
    view = asdict(explanation)
    target = {"host": view.pop("host"), "port": view.pop("port")}
    return {
        **view,
        "headers": {"set": dict(explanation.headers.set), "remove": list(explanation.headers.remove)},
        "rules": [{**rule, "use": rule["use"] or None} for rule in view["rules"]],
        "target": target,
        "tls_name": {**view["tls_name"], "kind": explanation.tls_name.kind or None},
        "account": explanation.account or None,
        "credential": explanation.credential or None,
        "upstreams": None if explanation.upstreams is None else _upstreams_view(explanation.upstreams),
        "source": None if explanation.source is None else _source_view(explanation.source),
    }


ROWS = resource(PROXY)(
    post(
        "/explain",
        "explainAccess",
        explain_access,
        Explanation,
        "proxy.read",
        query=NodesAlone,
        body=ExplainBody,
        audit=False,
    ),
)
