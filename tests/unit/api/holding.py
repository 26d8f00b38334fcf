"""Holders of accounts, who sign in at `/me`."""

from __future__ import annotations

from typing import Any

from api.api_settings import ApiSettings
from config.model.fleet_accounts import FleetAccountCreate
from config.settings.settings import AccountSettings
from tests.kit.api_stage import INTRANET, QUIET, Api, error_of

PASSWORD = "battery staple"


def account(api: Api, username: str = "alice", password: str | None = PASSWORD, **fields: Any) -> str:
    """The id of a new account."""
    body = FleetAccountCreate.model_validate({"username": username, "password": password, **fields})
    return api.services.fleet_accounts.create(body).record.id


def with_self_service() -> Api:
    """An API where holders may sign in."""
    return Api(ApiSettings(security=QUIET, proxy=INTRANET, accounts=AccountSettings(self_service=True)))


def refused(api: Api, **body: str) -> tuple[int, str]:
    """Status and code of a sign-in that fails; by default of `account` with its password."""
    return error_of(api.post("/me/login", {"username": "alice", "password": PASSWORD, **body}))[:2]


def sign_in(api: Api, username: str = "alice", password: str = PASSWORD, **more: str) -> dict[str, str]:
    """The headers of a holder."""
    response = api.post("/me/login", {"username": username, "password": password, **more})
    assert response.status_code == 200, response.text
    return {"Authorization": f"Bearer {response.json['data']['access_token']}"}


def holder(api: Api, username: str = "alice") -> dict[str, str]:
    """The headers of the holder of a new account, with self-service on."""
    api.services.self_service.enabled = lambda: True
    account(api, username)
    return sign_in(api, username)
