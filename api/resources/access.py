"""What would happen to a request through a proxy: asked of the process that decides."""

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


class ExplainBody(Body):
    """Who wants to go where."""

    model_config = example({"client_ip": "192.0.2.7", "target": "https://example.com/", "user": "alice"})

    client_ip: Annotated[StrictStr, AfterValidator(one_address), json_patterns.text(json_patterns.ADDRESS)]
    target: Annotated[
        StrictStr,
        Field(min_length=1, max_length=2048),
        AfterValidator(_target),
        json_patterns.text(json_patterns.TARGET),
    ]
    user: Annotated[StrictStr, Field(min_length=1, max_length=128)] | None = None


def explain_access(call: Call) -> Reply:
    """Explain the decision about a request.

    Evaluates the access rules, limits and the egress guard for a client and a target, without sending anything to the
    target. The response names the rule that decides. `user` is taken to have the right password; without it the client
    has no credentials.
    """
    proxy = call.services.proxies.get(call.params["proxy_id"])
    if proxy.record.status == "inactive":
        raise Invalid("status", "the proxy is inactive, so nobody decides; start it first")
    question = Explain(call.body.client_ip, call.body.user, call.body.target)
    to = forwarding_name(proxy.record.id)
    answer: Any = request(call.services.bridge, to, question, Explanation, Failed)
    if isinstance(answer, Failed):
        raise Invalid(answer.field, answer.error)
    hidden = not read_target(call.body.target).literal and not call.caller.may("proxy.write")
    return Reply(_shown(_without_addresses(answer) if hidden else answer))


def _without_addresses(explanation: Explanation) -> Explanation:
    """What a name resolves to inside is not for everybody who may read."""
    rule = without_address(explanation.host) if explanation.stage == "egress_guard" else explanation.rule
    return replace(explanation, rule=rule, addresses=())


def _shown(explanation: Explanation) -> dict[str, Any]:
    shown = asdict(explanation)
    target = {"host": shown.pop("host"), "port": shown.pop("port")}
    return {**shown, "target": target}
