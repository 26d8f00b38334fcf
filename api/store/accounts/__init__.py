"""The store of accounts, plans and credentials: documents with revisions in one SQLite file, for hundreds of thousands.

It is beside the configuration store, in the same folder, and keeps the same protocol (`api.store.interface`) with a
counter of its own; TinyDB would write tens of megabytes for each change. The API owns it.

- `schema`: tables, and what of a document is in columns, so that it can be found.
- `reading` and `store`, which writes; `batch`: the writes of one commit; `file`: the file as a whole.
- `staging`: accounts that are stored in one step, too many for memory.
- `pages`: pages of accounts, and clashes of names; `usage_order`, `never_used`: pages by figures of the metrics
  collector.
- `publication`: behind each commit the same change goes to the table that forwarding actors read.

Nothing here holds all accounts in memory.
"""

from __future__ import annotations

from api.store.accounts.file import check_accounts_file, read_named_policies, start_over_above
from api.store.accounts.pages import BY_FIGURE, SORTS, AccountSelection, Figures, Position
from api.store.accounts.publication import Published
from api.store.accounts.reading import AccountEnd
from api.store.accounts.schema import ACCOUNTS, CREDENTIALS, PLANS, accounts_file
from api.store.accounts.staging import Staged, Staging
from api.store.accounts.store import AccountStore, open_accounts

__all__ = [
    "ACCOUNTS",
    "BY_FIGURE",
    "CREDENTIALS",
    "PLANS",
    "SORTS",
    "AccountEnd",
    "AccountSelection",
    "AccountStore",
    "Figures",
    "Position",
    "Published",
    "Staged",
    "Staging",
    "accounts_file",
    "check_accounts_file",
    "open_accounts",
    "read_named_policies",
    "start_over_above",
]
