"""How the user names of a proxy are read, by its configuration."""

from __future__ import annotations

from actors.bus.messages.specs import ProxySpec
from actors.bus.messages.upstreams import UpstreamsSpec
from actors.forwarding.access.username_parameters import Names, Reader, SessionSuffix
from actors.forwarding.fleet_objects import FleetObjects
from actors.forwarding.net.egress import SESSION

_SUFFIX = SessionSuffix()


def reader_of(spec: ProxySpec, objects: FleetObjects, has_upstreams: bool) -> Reader | None:
    """None: user names are taken as they are. Known are the labels of all upstreams, and what policies ask for.

    Without `username_params` there may be a session where it has an effect: on upstreams, or on source addresses.
    """
    wanted = spec.username_params
    if wanted is None:
        return _SUFFIX if has_upstreams or spec.bind_policy == SESSION else None
    upstreams: list[UpstreamsSpec] = [spec.upstreams, *(pool.upstreams for pool in objects.pools)]
    labels = {name for each in upstreams for entry in each.entries for name, _value in entry.labels}
    marks = {name for each in objects.policies for rule in each.rules for name, _value in rule.params}
    return Names(wanted.separator, frozenset(labels), frozenset(marks), wanted.reject_unknown)
