"""Where a request would leave from, for `explain`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.bus.messages.forwarding import ExplainedSource
from actors.bus.messages.specs import AccountSpec
from actors.forwarding.context import ForwardingContext
from actors.forwarding.net.egress import BIND_ADDRESS, Requested, Stated
from actors.forwarding.net.source_address import Source

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Verdict


def source_for(
    context: ForwardingContext, requested: Requested, account: AccountSpec | None, verdict: Verdict | None
) -> Source:
    """Where the request leaves from, if by nothing else as all of the proxy do."""
    stated = context.sources.stated(verdict, account)
    return context.sources.explained(stated, requested, account) if stated.entries else context.dialer.source


def explained_source(
    context: ForwardingContext, source: Source, account: AccountSpec | None, verdict: Verdict | None
) -> ExplainedSource | None:
    """What to say of it; None: the kernel chooses."""
    if not source.given:
        return None
    stated = context.sources.stated(verdict, account)
    if not stated.entries:
        stated = Stated((context.sources.address,), BIND_ADDRESS)
    ipv4, ipv6 = ("", "") if source.drawn else (source.ipv4, source.ipv6)
    return ExplainedSource(stated.rule, context.sources.policy, stated.entries, ipv4, ipv6)
