"""Accounts, plans and credentials: documents in tables of their own, for hundreds of thousands.

- `columns`: what of a document is in columns, so that it can be found, and what forwarding actors read of it.
- `store` reads and writes.
- `staging`: accounts that are stored in one commit, too many for memory.
- `pages`: pages of accounts, and clashes of names; `usage_order`: pages by figures of the metrics
  collector.

Nothing here holds all accounts in memory.
"""

from __future__ import annotations

from api.store.accounts.columns import ACCOUNTS, CREDENTIALS, PLANS
from api.store.accounts.pages import BY_FIGURE, SORTS, AccountSelection, Clash, Figures, Position
from api.store.accounts.staging import Staged, Staging
from api.store.accounts.store import AccountEnd, AccountStore

__all__ = [
    "ACCOUNTS",
    "BY_FIGURE",
    "CREDENTIALS",
    "PLANS",
    "SORTS",
    "AccountEnd",
    "AccountSelection",
    "AccountStore",
    "Clash",
    "Figures",
    "Position",
    "Staged",
    "Staging",
]
