"""What the rules of now say about a tunnel that is open: when they have changed, and about a name in its handshake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.forwarding.access.policy import Decision, refused_by_own
from actors.forwarding.access.rules import OwnRules
from actors.forwarding.access.tls_names import decide_name
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.meter import Meter, account_of
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.egress_guard import LOOPBACK, is_localhost
from actors.net.socks_wire import UNSPECIFIED, endpoint_of
from actors.net.transport import Transport

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import PolicyVerdict


def name_decision(
    context: ForwardingContext,
    named: Authority,
    client_ip: str,
    listen_port: int,
    report: Report,
    meter: Meter | None,
    address: str | None,
    through_upstream: bool,
    verdict: PolicyVerdict | None,
) -> Decision:
    """What all that judged the request of a tunnel says about another name in its handshake (`decide_name`).

    `report` is the tunnel's; `verdict` that of the policies about the request, None without any.
    """
    judge = None
    if context.judges(account_of(meter)):
        from actors.forwarding.connections.policy_handlers import new_judge  # only with policies

        judge = new_judge(context, named, client_ip, listen_port, report.user, meter, params=report.params)
    own = context.own_rules(meter)
    return decide_name(context.policy.access, own, judge, named, address, through_upstream, verdict)


def tunnel_refusal(own: OwnRules, target: Authority, origin: Transport, through_upstream: bool) -> Failure | None:
    """Why a tunnel to `target` is no longer allowed; None when it is."""
    address = _behind_upstream(target) if through_upstream else peer_of(origin, target)
    decision = refused_by_own(own, target, address)
    return None if decision is None else decision.failure


def peer_of(origin: Transport, target: Authority) -> str:
    """The address that a connection goes to; where it has broken meanwhile, any will do to find that out."""
    try:
        return endpoint_of(origin.getpeername())[0]
    except OSError:
        return target.host if target.literal else UNSPECIFIED[0]


def _behind_upstream(target: Authority) -> str | None:
    """As `AccessPolicy.unresolved` has decided about it: None, where the upstream has resolved a name."""
    if target.literal:
        return target.host
    return LOOPBACK if is_localhost(target.host) else None
