"""All accounts as one list: those of the fleet, and those of one proxy alone."""

from __future__ import annotations

import heapq
from typing import Literal

from api.errors import Invalid
from api.services.fleet_accounts import FleetAccounts, StoredAccount
from api.services.inline_accounts import InlineAccount, InlineAccounts
from api.store.accounts import AccountSelection, Position

Kinds = Literal["all", "fleet", "inline"]
Place = tuple[StoredAccount, Position]


class EveryAccount:
    """Reads alone. Thread-safe."""

    def __init__(self, fleet: FleetAccounts, inline: InlineAccounts) -> None:
        self._fleet = fleet
        self._inline = inline

    def get(self, account_id: str) -> StoredAccount:
        """One account. Raises `NotFound`."""
        found = self._inline.get(account_id)
        return self._fleet.get(account_id) if found is None else _stored(found)

    def refuse_inline(self, account_id: str) -> None:
        """Raise `Invalid` for an account that is changed with its proxy."""
        found = self._inline.get(account_id)
        if found is not None:
            proxy = found.proxy.record
            path = f"/proxies/{proxy.id}/accounts/{found.account.username}"
            raise Invalid(None, f"the account is one of the proxy {proxy.name!r} alone: change it at {path}")

    def page(
        self, selection: AccountSelection, after: Position | None, limit: int, kinds: Kinds = "all"
    ) -> tuple[list[Place], Position | None]:
        """As `FleetAccounts.page`, of these kinds in one order."""
        fleet: list[Place] = []
        following: Position | None = None
        if kinds != "inline":
            fleet, following = self._fleet.page(selection, after, limit)
        inline = [] if kinds == "fleet" else self._inline.page(selection, after, limit + 1)
        if not inline:
            return fleet, following
        places: list[Place] = [(_stored(one), place) for one, place in inline]
        merged = list(heapq.merge(fleet, places, key=lambda each: each[1], reverse=selection.descending))
        more = following is not None or len(merged) > limit
        return merged[:limit], merged[limit - 1][1] if more else None


def _stored(one: InlineAccount) -> StoredAccount:
    return StoredAccount(one.as_fleet(), one.proxy.revision, inline=True)
