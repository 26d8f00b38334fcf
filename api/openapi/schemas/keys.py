"""Views of API keys."""

from __future__ import annotations

from api.engine.responses import shows
from api.openapi.schemas.base import Moment, ResponseModel
from api.security.api_keys import ApiKey


class KeyScope(ResponseModel):
    """The scope of a key; null or absent is no limit."""

    proxies: list[str] | None = None
    accounts: list[str] | None = None
    pools: list[str] | None = None
    policies: list[str] | None = None
    lists: list[str] | None = None
    ip_whitelist: list[str] | None = None


@shows(ApiKey)
class ApiKeyView(ResponseModel):
    """An API key without the key itself, which is only in the response to its creation."""

    scope: KeyScope | None


class ApiKeys(ResponseModel):
    """API keys, oldest first."""

    api_keys: list[ApiKeyView]
    total: int


class NewApiKey(ResponseModel):
    """A new API key and its text."""

    api_key: ApiKeyView
    key: str


class PreviousApiKey(ResponseModel):
    """The rotated key: revoked, or valid until `expires_at`."""

    id: str
    revoked: bool
    expires_at: Moment | None


class RotatedApiKey(NewApiKey):
    """The key that replaces the rotated one, and its text."""

    previous: PreviousApiKey
