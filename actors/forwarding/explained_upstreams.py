"""Which upstream a request would go through, for `explain`, and why others would not be chosen."""

from __future__ import annotations

from actors.bus.messages.forwarding import ExplainedUpstream, ExplainedUpstreams
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.upstreams.upstream_set import UpstreamSet

LEFT_OUT_MAX = 100
"""Upstreams that are named with the reason; the number of all is there, too."""


def explained_upstreams(upstreams: UpstreamSet, parameters: Parameters, key: str) -> ExplainedUpstreams:
    """`key` is what `sticky` hashes."""
    usable, left_out = 0, list[ExplainedUpstream]()
    for each in upstreams.members:
        why = upstreams.why_left_out(each, parameters)
        if not why:
            usable += 1
        elif len(left_out) < LEFT_OUT_MAX:
            left_out.append(ExplainedUpstream(each.name, why))
    chosen = upstreams.would_choose(parameters, key)
    return ExplainedUpstreams(
        pool=upstreams.name,
        policy=upstreams.spec.policy,
        chosen="" if chosen is None else chosen.name,
        total=len(upstreams.members),
        usable=usable,
        left_out=tuple(left_out),
    )
