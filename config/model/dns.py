"""`dns` of a proxy: what it says about resolving names in place of the settings `proxy.dns`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictInt, StrictStr, WithJsonSchema

from config.model import json_patterns
from config.model.declaration import Given, Group
from config.model.fields import InvalidProxy
from config.net.dns_servers import TTL_MAX, read_address, read_hosts_name, read_server

SERVERS_MAX = 8
HOSTS_MAX = 1000
ADDRESSES_MAX = 32
"""Of one name of `hosts`."""

Prefer = Literal["default", "any", "ipv4", "ipv6"]


def _server(text: str) -> str:
    return str(read_server(text))


NameServer = Annotated[
    StrictStr,
    Field(min_length=1, max_length=512),
    AfterValidator(_server),
    json_patterns.text(json_patterns.NAME_SERVER, 1, 512),
]
HostsName = Annotated[StrictStr, Field(min_length=1, max_length=253), AfterValidator(read_hosts_name)]
Address = Annotated[
    StrictStr, Field(max_length=45), AfterValidator(read_address), json_patterns.text(json_patterns.ADDRESS)
]
Servers = Annotated[list[NameServer], Field(max_length=SERVERS_MAX)]
Addresses = Annotated[
    list[Address],
    Field(min_length=1, max_length=ADDRESSES_MAX),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
]
"""A single one may be written without a list."""
_ADDRESS_SCHEMA: dict[str, Any] = {"type": "string", "pattern": json_patterns.ADDRESS}
Hosts = Annotated[
    dict[HostsName, Addresses],
    Field(max_length=HOSTS_MAX),
    WithJsonSchema(
        {
            "type": "object",
            "propertyNames": {"pattern": json_patterns.HOSTS_NAME},
            "additionalProperties": {
                "anyOf": [
                    _ADDRESS_SCHEMA,
                    {"type": "array", "items": _ADDRESS_SCHEMA, "minItems": 1, "maxItems": ADDRESSES_MAX},
                ]
            },
            "maxProperties": HOSTS_MAX,
        }
    ),
]
Ttl = Annotated[StrictInt, Field(ge=0, le=TTL_MAX)]


class ProxyDns(Group):
    """How names are resolved for this proxy. What is empty, 0 or `default` is as in the settings (`proxy.dns`).

    `hosts` come before those of the settings. TTLs are seconds.
    """

    servers: Annotated[list[str], Given(Servers)] = Field(default_factory=list)
    hosts: Annotated[dict[str, list[str]], Given(Hosts)] = Field(default_factory=dict)
    prefer: Annotated[Prefer, Given(Prefer)] = "default"
    min_ttl: Annotated[int, Given(Ttl)] = 0
    max_ttl: Annotated[int, Given(Ttl)] = 0


def check_ttls(dns: ProxyDns) -> None:
    """Raise `InvalidProxy` when the shortest time is above the longest, where both are given."""
    if dns.max_ttl and dns.min_ttl > dns.max_ttl:
        raise InvalidProxy("dns.min_ttl", f"must not be above dns.max_ttl ({dns.max_ttl})")
