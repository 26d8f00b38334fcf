"""How an actor's names are resolved: what its proxy says, on top of the settings `proxy.dns`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from actors.bus.messages.specs import DnsSpec
from actors.forwarding.net.resolver_link import Profile


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """`names` have addresses that come before all name servers; `prefers` is `any`, `ipv4` or `ipv6`."""

    profile: Profile = field(default_factory=Profile)
    prefers: str = "any"
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def merged(group: Mapping[str, Any], own: DnsSpec, proxy: str) -> DnsSettings:
    """`group` is that of the settings, `own` of this proxy."""
    servers = own.servers or tuple(group["servers"])
    max_ttl = own.max_ttl or group["max_ttl"]
    min_ttl = min(own.min_ttl or group["min_ttl"], max_ttl)
    profile = Profile(servers, min_ttl, max_ttl, proxy if own.servers else "")
    prefers = group["prefer"] if own.prefer == "default" else own.prefer
    names = {name: tuple(addresses) for name, addresses in group["hosts"].items()}
    return DnsSettings(profile, prefers, {**names, **own.hosts})
