"""Whether the rules of an account and a credential still allow what is open, when they have changed."""

from __future__ import annotations

from actors.forwarding.access.narrowing import OwnRules
from actors.forwarding.access.policy import refused_by_own
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.http.targets import Authority
from actors.net.egress_guard import LOOPBACK, is_localhost
from actors.net.socks_wire import UNSPECIFIED, endpoint_of
from actors.net.transport import Transport


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
