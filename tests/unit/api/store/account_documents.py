"""Documents of accounts, plans and credentials."""

from __future__ import annotations

from typing import Any

from actors.accounts.table import digest_of
from config.model.account_credentials import AccountCredential
from config.model.fleet_accounts import FleetAccount
from config.model.plans import Plan

SECRET = "pfc_" + "a" * 40


def account(identifier: str, username: str | None = None, **more: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"created_at": 1.0, "updated_at": 1.0, **more}
    return FleetAccount(id=identifier, username=username or identifier, **fields).model_dump(mode="json")


def plan(identifier: str, **more: Any) -> dict[str, Any]:
    return Plan(id=identifier, name=identifier, created_at=1.0, updated_at=1.0, **more).model_dump(mode="json")


def credential(identifier: str, of: str, secret: str = SECRET) -> dict[str, Any]:
    digest = digest_of(secret).hex()
    made = AccountCredential(
        id=identifier, account_id=of, prefix=secret[:11], secret_hash=digest, expires_at=9e9, created_at=1.0
    )
    return made.model_dump(mode="json")
