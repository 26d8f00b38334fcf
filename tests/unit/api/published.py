"""The table of accounts that the API has published to forwarding actors."""

from __future__ import annotations

from typing import Any

from actors.accounts.records import AccountRecord, PlanRecord
from tests.kit.api_stage import Api


class Published:
    """What forwarding actors see."""

    def __init__(self, api: Api) -> None:
        published = api.services.account_store._published  # a process opens an LMDB file only once
        assert published is not None
        assert published._table is not None
        self._table: Any = published._table

    def account(self, account_id: str) -> AccountRecord:
        found: AccountRecord = self._table.account(account_id)
        return found

    def plan(self, plan_id: str) -> PlanRecord:
        found: PlanRecord = self._table.plan(plan_id)
        return found
