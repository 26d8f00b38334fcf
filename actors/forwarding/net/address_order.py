"""In which order the addresses of a target are tried (RFC 8305, section 4), and what was learned from earlier attempts.

The families take turns. What was silent while another address connected, and a family that has no way out, come last
for a while: so a black hole costs its delay once. The first success puts an address and its family right again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, zip_longest

from actors.bounded import keep

SHUNNED_FIRST, SHUNNED_LONGEST = 60.0, 600.0
"""Seconds that a silent address or family comes last; doubled each time that it is silent again."""
KNOWN_MAX = 1024


def is_v6(address: str) -> bool:
    """Whether it is an IPv6 address."""
    return ":" in address


def preferring(addresses: Iterable[str], v6_first: bool) -> tuple[str, ...]:
    """The addresses with those of one family first, and else in their order."""
    return tuple(sorted(addresses, key=lambda each: is_v6(each) != v6_first))


class AddressOrder:
    """`now` is the loop's clock."""

    def __init__(self) -> None:
        self._silent: dict[str | bool, tuple[float, float]] = {}
        """By address or family (True: IPv6): until when it comes last, and for how long that was."""

    def order(self, addresses: Sequence[str], now: float) -> list[str]:
        """The addresses as they are to be tried."""
        if len(addresses) < 2:
            return list(addresses)
        first = is_v6(addresses[0])
        own, other = [a for a in addresses if is_v6(a) is first], [a for a in addresses if is_v6(a) is not first]
        mixed = [each for each in chain.from_iterable(zip_longest(own, other)) if each is not None]
        return sorted(mixed, key=lambda each: self._rank(each, now)) if self._silent else mixed

    def was_silent(self, address: str, connected: str, now: float) -> None:
        """`address` had not connected in its time when a later one did, perhaps of the other family."""
        self._shun(address, now)
        if is_v6(address) is not is_v6(connected):
            self._shun(is_v6(address), now)

    def has_no_route(self, address: str, now: float) -> None:
        """The kernel knows no way to this address, and so to none of its family in most cases."""
        self._shun(is_v6(address), now)

    def has_connected(self, address: str) -> None:
        """It works."""
        if self._silent:
            self._silent.pop(address, None)
            self._silent.pop(is_v6(address), None)

    def _shun(self, key: str | bool, now: float) -> None:
        until, lasted = self._silent.get(key, (0.0, 0.0))
        if until <= now:
            lasts = min(max(SHUNNED_FIRST, 2 * lasted), SHUNNED_LONGEST)
            keep(self._silent, key, (now + lasts, lasts), KNOWN_MAX)

    def _rank(self, address: str, now: float) -> int:
        silent = self._silent
        of_family, of_address = silent.get(is_v6(address), (0.0, 0.0)), silent.get(address, (0.0, 0.0))
        return 2 * (of_family[0] > now) + (of_address[0] > now)
