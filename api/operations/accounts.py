"""The accounts of a proxy: several client credentials."""

from __future__ import annotations

from api import accounts
from api.operations.operation import PROXY, Operation
from api.resources import accounts as account_handlers
from config.accounts import AccountInput, AccountUpdate

_ACCOUNT = f"{PROXY}/accounts/{{username}}"
_READ_ONLY = accounts.READ_ONLY_FIELDS | {"username"}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET", f"{PROXY}/accounts", "proxy.read", "listAccounts", "List accounts", account_handlers.list_accounts
    ),
    Operation(
        "POST",
        f"{PROXY}/accounts",
        "proxy.write",
        "createAccount",
        "Add an account",
        account_handlers.create_account,
        AccountInput,
        accounts.READ_ONLY_FIELDS,
        status=201,
        matches=True,
    ),
    Operation(
        "GET", _ACCOUNT, "proxy.read", "getAccount", "Show an account", account_handlers.get_account, matches=True
    ),
    Operation(
        "PUT",
        _ACCOUNT,
        "proxy.write",
        "replaceAccount",
        "Change an account",
        account_handlers.update_account,
        AccountUpdate,
        _READ_ONLY,
        matches=True,
    ),
    Operation(
        "PATCH",
        _ACCOUNT,
        "proxy.write",
        "updateAccount",
        "Change an account",
        account_handlers.update_account,
        AccountUpdate,
        _READ_ONLY,
        matches=True,
    ),
    Operation(
        "DELETE",
        _ACCOUNT,
        "proxy.write",
        "deleteAccount",
        "Remove an account",
        account_handlers.delete_account,
        matches=True,
    ),
    Operation(
        "POST",
        f"{_ACCOUNT}/reset-usage",
        "proxy.write",
        "resetAccountUsage",
        "Let an account have used nothing",
        account_handlers.reset_usage,
    ),
)
