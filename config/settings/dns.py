"""`proxy.dns`: how names are resolved, for all proxies that say nothing else themselves."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from config.net.dns_servers import TTL_MAX, read_address, read_hosts_name, read_server
from config.settings.groups import Group

SERVERS_MAX = 8


def _server(text: str) -> str:
    return str(read_server(text))


NameServer = Annotated[str, AfterValidator(_server)]
HostsName = Annotated[str, AfterValidator(read_hosts_name)]
Address = Annotated[str, AfterValidator(read_address)]
Addresses = Annotated[
    tuple[Address, ...],
    Field(min_length=1, max_length=32),
    BeforeValidator(lambda value: (value,) if isinstance(value, str) else value),
]
"""A single one may be written without a list."""


class Dns(Group):
    """`proxy.dns`. Without `servers` names are resolved as the system is configured; `hosts` come before all servers.

    `prefer` is the family whose addresses are tried first. What a name server says is kept for its time to live, but
    for `min_ttl` seconds at least and `max_ttl` at most.
    """

    servers: tuple[NameServer, ...] = Field((), max_length=SERVERS_MAX)
    hosts: dict[HostsName, Addresses] = Field(default_factory=dict, max_length=1000)
    prefer: Literal["any", "ipv4", "ipv6"] = "any"
    min_ttl: int = Field(0, ge=0, le=TTL_MAX)
    max_ttl: int = Field(86_400, ge=1, le=TTL_MAX)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.min_ttl > self.max_ttl:
            raise ValueError("min_ttl must not be above max_ttl")
        return self
