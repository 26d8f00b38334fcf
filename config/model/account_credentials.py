"""Credentials of accounts, as they are stored. The secret itself is not: its SHA-256 is enough to recognize it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from config.model.declaration import SECRET

PREFIX = "pfc_"
"""The beginning of every secret."""
PREFIX_LENGTH = 11
"""Characters of a secret that stay, so that people recognize it."""


class AccountCredential(BaseModel):
    """A document of the collection `credentials`. Times are Unix seconds.

    `secret_hash` is the SHA-256 of the secret in hex, `prefix` its beginning. `allow_destinations` null is as the
    account; `quota` is bytes in total, 0 for none, as `max_connections`.
    """

    id: str
    account_id: str
    name: str = ""
    prefix: str
    secret_hash: Annotated[str, SECRET] = Field(repr=False)
    expires_at: float
    allow_clients: list[str] = []
    allow_destinations: list[str] | None = None
    quota: int = 0
    max_connections: int = 0
    created_at: float
