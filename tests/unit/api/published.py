"""What forwarding actors read of what the API has stored."""

from __future__ import annotations

from contextlib import closing

from actors.accounts.records import AccountRecord, PlanRecord
from actors.accounts.table import AccountTable
from tests.kit.api_stage import Api


class Published:
    """What forwarding actors see."""

    def __init__(self, api: Api) -> None:
        self._file = api.data.fleet

    def account(self, account_id: str) -> AccountRecord:
        with closing(AccountTable(self._file)) as table:
            found = table.account(account_id)
            assert found is not None
            return found

    def plan(self, plan_id: str) -> PlanRecord:
        with closing(AccountTable(self._file)) as table:
            found = table.plan(plan_id)
            assert found is not None
            return found
