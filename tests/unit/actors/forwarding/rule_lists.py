"""Lists that entries of access rules name, for tests."""

from __future__ import annotations

from ipaddress import ip_network
from typing import NamedTuple

from actors.forwarding.fleet_objects import FoundList
from config.net.addresses import Address
from config.net.entries import ListHost


class Domains(NamedTuple):
    """A list of one domain."""

    domain: str

    def by_name(self, name: str) -> str | None:
        return self.domain if f".{name}".endswith(f".{self.domain}") else None

    def by_address(self, _address: Address) -> str | None:
        return None


class Networks(NamedTuple):
    """A list of one network."""

    network: str

    def by_name(self, _name: str) -> str | None:
        return None

    def by_address(self, address: Address) -> str | None:
        return self.network if address in ip_network(self.network) else None


class Lists:
    """Lists by what entries write."""

    def __init__(self, **lists: Domains | Networks) -> None:
        self.lists = lists

    def find(self, host: ListHost) -> FoundList | None:
        return self.lists.get(host.name)

    def judges_addresses(self, host: ListHost) -> bool:
        return isinstance(self.lists.get(host.name), Networks)


LISTS = Lists(ads=Domains("ads.example"), work=Domains("work.example"), lan=Networks("10.0.0.0/8"))
