"""What would happen to a request, by the very judge, resolver and credentials that decide about real ones.

Nothing is connected to. The stages are those of a real request, in their order: `client` (at accept), `user`,
`account` (disabled, expired, from elsewhere, quota used up), `name` (before resolving), `resolve`, then for each
address `egress_guard` and `address`. The first that says no decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from actors.bus.messages.forwarding import Explain, ExplainedAddress, Explanation
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.context import ForwardingContext
from actors.forwarding.net.resolver import Answer
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority, parse_authority

_URL = re.compile(r"(https?)://([^/?#]*)(?:[/?#].*)?", re.IGNORECASE | re.DOTALL | re.ASCII)
_BARE_V6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", re.ASCII)
DEFAULT_PORT = 443


class _Said(NamedTuple):
    """The decision as a whole, without the addresses."""

    judgement: Decision
    addresses: tuple[ExplainedAddress, ...] = ()


def read_target(text: str) -> Authority:
    """The authority in an http or https URL, in `host:port`, or in a host alone, whose port is 443 then.

    Raises `Refused` for what a proxy would not take as a target either.
    """
    port = DEFAULT_PORT
    if match := _URL.fullmatch(text):
        port, text = (80 if match[1].lower() == "http" else 443), match[2]
    elif _BARE_V6.fullmatch(text):
        text = f"[{text}]"
    try:
        return parse_authority(text.encode("ascii"), port)
    except UnicodeEncodeError:
        raise failures.malformed("the target is not ASCII; write the name as it is in the DNS (xn--…)") from None


def explain(context: ForwardingContext, question: Explain, done: Callable[[Explanation], None]) -> None:
    """Call `done` with the explanation, perhaps in this very call. Raises `Refused` for what is no target."""
    target = read_target(question.target)
    judge = context.policy.access

    def say(said: _Said) -> None:
        done(_explanation(said, target, judge.mode))

    client = judge.client(question.client_ip)
    early = _before_resolving(context, judge, client, question, target)
    if early is not None:
        say(_Said(early))
    elif context.upstreams is not None:
        say(_Said(judge.unresolved(target)))
    elif target.literal:
        say(_judge_addresses(judge, client, target, (target.host,)))
    else:
        context.dialer.resolver.resolve(target.host, lambda answer: say(_resolved(judge, client, target, answer)))


def _before_resolving(
    context: ForwardingContext, judge: AccessPolicy, client: Decision, question: Explain, target: Authority
) -> Decision | None:
    user = question.user
    if client.failure is not None:
        return client
    if user is None and context.policy.session.wants_credentials:
        return _no(failures.CREDENTIALS_WANTED, "auth: credentials are required (407), and no user is named", "user")
    if user is not None and not context.is_known_user(user):
        return _no(failures.CREDENTIALS_WANTED, "auth: this is not a user of the proxy", "user")
    failure = context.limits.judge_user(user or "", question.client_ip)
    if failure is not None:
        return _no(failure, f"accounts: {failure.detail}", "account")
    return judge.name(target) if context.upstreams is None else None  # `unresolved` judges all of it, in its order


def _resolved(judge: AccessPolicy, client: Decision, target: Authority, answer: Answer) -> _Said:
    if isinstance(answer, Failure):
        return _Said(_no(answer, answer.detail, "resolve"))
    return _judge_addresses(judge, client, target, answer.addresses)


def _judge_addresses(judge: AccessPolicy, client: Decision, target: Authority, addresses: tuple[str, ...]) -> _Said:
    judged = [(address, judge.address(target, address)) for address in addresses]
    told = tuple(ExplainedAddress(address, _decision(each), each.reason, each.rule) for address, each in judged)
    passing = next((each for _address, each in judged if each.failure is None), None)
    if passing is None:
        nothing = _no(failures.unroutable("no address to connect to"), "", "resolve")
        return _Said(judged[0][1] if judged else nothing, told)
    return _Said(client if client.reason else passing, told)


def _no(failure: Failure, rule: str, stage: str) -> Decision:
    return Decision(failure, failure.reason, rule, stage)


def _decision(judgement: Decision) -> str:
    return "allow" if judgement.failure is None else "deny"


def _explanation(said: _Said, target: Authority, mode: str) -> Explanation:
    judgement, addresses = said
    return Explanation(
        decision=_decision(judgement),
        reason=judgement.reason,
        rule=judgement.rule,
        stage=judgement.stage,
        mode=mode,
        host=target.host,
        port=target.port,
        addresses=addresses,
    )
