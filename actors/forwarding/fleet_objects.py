"""The lists, pools and policies that a forwarding actor's proxy needs, unpacked: one consistent set, replaced whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

from actors.bus.codec import unpack
from actors.bus.messages.specs import FIRST_POLICY, POLICY_KEY, POOL_KEY, ListRef, PolicySpec, PoolSpec
from config.net.addresses import Address
from config.net.entries import ListHost

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FleetObjects:
    """A consistent set of objects, as a forwarding actor has it: whatever one of them names is in it.

    `first_policy` is the name of the policy that comes before all others, empty for none.
    """

    lists: tuple[ListRef, ...] = ()
    pools: tuple[PoolSpec, ...] = ()
    policies: tuple[PolicySpec, ...] = ()
    first_policy: str = ""


class FoundList(Protocol):
    """A list that can be read. Both return what of it matches, as text."""

    def by_name(self, name: str) -> str | None:
        """The domain that matches a name in lower case without a dot at its end."""

    def by_address(self, address: Address) -> str | None:
        """The network or place that matches an address."""


class NamedLists(Protocol):
    """The lists that entries may name, as they are now."""

    def __hash__(self) -> int:
        """Rules that are compiled with other lists are other rules."""

    def find(self, host: ListHost) -> FoundList | None:
        """The list; None when it can't be read."""

    def judges_addresses(self, host: ListHost) -> bool:
        """Whether its entries match addresses, not names."""


class _NoLists:
    def find(self, _host: ListHost) -> FoundList | None:
        return None

    def judges_addresses(self, _host: ListHost) -> bool:
        return False


NO_LISTS: Final = _NoLists()
"""Of those who have none: every list that is named can't be read."""


class ObjectReader:
    """Reads the objects of each configuration. What is the same as before stays the same value."""

    def __init__(self) -> None:
        self._packed: Mapping[str, bytes] = {}
        self._values: dict[str, Any] = {}
        self._objects = FleetObjects()

    def read(self, packed: Mapping[str, bytes], changes: bool = False) -> FleetObjects:
        """The set of `Configure.objects`, or the one before with these `changes`. Raises `ProtocolError`."""
        if changes:
            packed = {key: value for key, value in sorted({**self._packed, **packed}.items()) if value}
        if packed == self._packed:
            return self._objects
        unchanged = {key: value for key, value in self._values.items() if packed.get(key) == self._packed[key]}
        lists = dict(_read(ListRef, "list:", packed, unchanged))
        pools = dict(_read(PoolSpec, POOL_KEY, packed, unchanged))
        policies = dict(_read(PolicySpec, POLICY_KEY, packed, unchanged))
        self._values = {**lists, **pools, **policies}
        self._packed = packed
        first = packed.get(FIRST_POLICY, b"").decode()
        self._objects = FleetObjects(tuple(lists.values()), tuple(pools.values()), tuple(policies.values()), first)
        return self._objects


def _read(kind: type[T], prefix: str, packed: Mapping[str, bytes], same: Mapping[str, Any]) -> Iterator[tuple[str, T]]:
    for key, value in packed.items():
        if key.startswith(prefix):
            known: T | None = same.get(key)
            yield key, unpack(kind, value) if known is None else known
