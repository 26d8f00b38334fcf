"""The explanation of a decision about a request, as the forwarding actor of the proxy gives it."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr

from actors.bus.messages.common import Failed, forwarding_name
from actors.bus.messages.forwarding import Explain, Explanation
from actors.forwarding.access.policy import without_address
from actors.forwarding.explain import read_target
from actors.forwarding.protocols.failures import Refused
from api.bus_bridge import request
from api.call import Call, Reply
from api.errors import Invalid
from config.model import json_patterns
from config.model.fields import Body, example
from config.net.entries import one_address


def _target(text: str) -> str:
    try:
        read_target(text)
    except Refused as refused:
        raise ValueError(refused.failure.detail) from refused
    return text


def _method(text: str) -> str:
    if not text.isascii() or not text.isalpha():
        raise ValueError("must be a method, such as GET")
    return text


class ExplainBody(Body):
    """A client and a target. `method` is for http URLs, GET by default."""

    model_config = example({"client_ip": "192.0.2.7", "target": "https://example.com/", "user": "alice"})

    client_ip: Annotated[StrictStr, AfterValidator(one_address), json_patterns.text(json_patterns.ADDRESS)]
    target: Annotated[
        StrictStr,
        Field(min_length=1, max_length=2048),
        AfterValidator(_target),
        json_patterns.text(json_patterns.TARGET),
    ]
    user: Annotated[StrictStr, Field(min_length=1, max_length=128)] | None = None
    credential: Annotated[StrictStr, Field(min_length=1, max_length=64)] | None = None
    method: (
        Annotated[StrictStr, Field(max_length=64), AfterValidator(_method), json_patterns.text("[A-Za-z]+", 1, 64)]
        | None
    ) = None


def explain_access(call: Call) -> Reply:
    """Explain the decision about a request.

    Evaluates the access rules, limits and the egress guard for a client and a target, without sending anything to the
    target. The response names the rule that decides. `user` is taken to have the right password, or `credential` (an
    id) to have come with its secret; without both the client has no credentials. `method` is that of a request for an
    http URL. `rules` are all rules of the policies that apply, each with why it does or does not match.
    """
    proxy = call.services.proxies.get(call.params["proxy_id"])
    if proxy.record.status == "inactive":
        raise Invalid("status", "the proxy is inactive, so it decides nothing; start it first")
    body = call.body
    query = Explain(body.client_ip, body.user, body.target, body.credential, body.method or "GET")
    reply: Any = request(call.services.bridge, forwarding_name(proxy.record.id), query, Explanation, Failed)
    if isinstance(reply, Failed):
        raise Invalid(reply.field, reply.error)
    hidden = not read_target(call.body.target).literal and not call.caller.may("proxy.write")
    return Reply(_view(_without_addresses(reply) if hidden else reply))


def _without_addresses(explanation: Explanation) -> Explanation:
    """Without the addresses that a name resolves to inside: not every caller who may read may see them."""
    rule = without_address(explanation.host) if explanation.stage == "egress_guard" else explanation.rule
    return replace(explanation, rule=rule, addresses=())


def _view(explanation: Explanation) -> dict[str, Any]:
    view = asdict(explanation)
    target = {"host": view.pop("host"), "port": view.pop("port")}
    return {
        **view,
        "rules": [{**rule, "use": rule["use"] or None} for rule in view["rules"]],
        "target": target,
        "account": explanation.account or None,
        "credential": explanation.credential or None,
    }
