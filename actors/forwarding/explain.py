"""What would happen to a request, by the access policy, resolver and accounts that decide about real ones.

Nothing is connected to. The stages are those of a real request, in order: `client` (at accept), `user`,
`account` (disabled, expired, from elsewhere, quota used up), `name` (before resolving), `resolve`, then for each
address `egress_guard` and `address`. The first refusal decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from actors.bus.messages.forwarding import Explain, ExplainedAddress, Explanation
from actors.forwarding.access.policy import AccessPolicy, Decision
from actors.forwarding.context import ForwardingContext
from actors.forwarding.net.resolver import Resolution
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority, parse_authority

_URL = re.compile(r"(https?)://([^/?#]*)(?:[/?#].*)?", re.IGNORECASE | re.DOTALL | re.ASCII)
_BARE_V6 = re.compile(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*", re.ASCII)
DEFAULT_PORT = 443


class _Result(NamedTuple):
    """The decision, and those about the addresses."""

    decision: Decision
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


def explain(context: ForwardingContext, query: Explain, done: Callable[[Explanation], None]) -> None:
    """Call `done` with the explanation, perhaps in this very call. Raises `Refused` when the target is none."""
    target = read_target(query.target)
    access = context.policy.access

    def reply(result: _Result) -> None:
        done(_explanation(result, target, access.mode))

    client = access.client(query.client_ip)
    early = _before_resolving(context, access, client, query, target)
    if early is not None:
        reply(_Result(early))
    elif context.upstreams is not None:
        reply(_Result(access.unresolved(target)))
    elif target.literal:
        reply(_decide_addresses(access, client, target, (target.host,)))
    else:
        context.dialer.resolver.resolve(target.host, lambda result: reply(_resolved(access, client, target, result)))


def _before_resolving(
    context: ForwardingContext, access: AccessPolicy, client: Decision, query: Explain, target: Authority
) -> Decision | None:
    user = query.user
    if client.failure is not None:
        return client
    if user is None and context.policy.session.wants_credentials:
        return _refusal(
            failures.CREDENTIALS_WANTED, "auth: credentials are required (407), and no user is named", "user"
        )
    if user is not None and not context.is_known_user(user):
        return _refusal(failures.CREDENTIALS_WANTED, "auth: this is not a user of the proxy", "user")
    failure = context.limits.user_refusal(user or "", query.client_ip)
    if failure is not None:
        return _refusal(failure, f"accounts: {failure.detail}", "account")
    return access.name(target) if context.upstreams is None else None  # `unresolved` decides all of it, in its order


def _resolved(access: AccessPolicy, client: Decision, target: Authority, result: Resolution) -> _Result:
    if isinstance(result, Failure):
        return _Result(_refusal(result, result.detail, "resolve"))
    return _decide_addresses(access, client, target, result.addresses)


def _decide_addresses(access: AccessPolicy, client: Decision, target: Authority, addresses: tuple[str, ...]) -> _Result:
    decisions = [(address, access.address(target, address)) for address in addresses]
    explained = tuple(ExplainedAddress(address, _decision(each), each.reason, each.rule) for address, each in decisions)
    passing = next((each for _address, each in decisions if each.failure is None), None)
    if passing is None:
        nothing = _refusal(failures.unroutable("no address to connect to"), "", "resolve")
        return _Result(decisions[0][1] if decisions else nothing, explained)
    return _Result(client if client.reason else passing, explained)


def _refusal(failure: Failure, rule: str, stage: str) -> Decision:
    return Decision(failure, failure.reason, rule, stage)


def _decision(decision: Decision) -> str:
    return "allow" if decision.failure is None else "deny"


def _explanation(result: _Result, target: Authority, mode: str) -> Explanation:
    decision, addresses = result
    return Explanation(
        decision=_decision(decision),
        reason=decision.reason,
        rule=decision.rule,
        stage=decision.stage,
        mode=mode,
        host=target.host,
        port=target.port,
        addresses=addresses,
    )
