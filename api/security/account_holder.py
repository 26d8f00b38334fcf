"""Who made a request with the token of an account holder, which opens the operations below `/me` and nothing else."""

from __future__ import annotations

from dataclasses import dataclass

from api.security.account_sessions import AccountSession


@dataclass(frozen=True, slots=True)
class AccountHolder:
    """The account and the sign-in."""

    account_id: str
    username: str
    session: AccountSession

    @property
    def identity(self) -> str:
        """Whose rate limit this counts for."""
        return self.account_id
