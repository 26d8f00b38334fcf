"""The accounts of a proxy: several client credentials."""

from __future__ import annotations

from api.operations.operation import PROXY, Operation
from api.resources import accounts as account_handlers
from api.services import accounts
from config.model.accounts import AccountInput, AccountUpdate

_ACCOUNT = f"{PROXY}/accounts/{{username}}"
_READ_ONLY = accounts.READ_ONLY_FIELDS | {"username"}

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{PROXY}/accounts",
        "proxy.read",
        "listAccounts",
        "List accounts",
        account_handlers.list_accounts,
        description=(
            "Returns the accounts of a proxy with their limits, quota and usage. Passwords are never returned."
        ),
    ),
    Operation(
        "POST",
        f"{PROXY}/accounts",
        "proxy.write",
        "createAccount",
        "Create an account",
        account_handlers.create_account,
        AccountInput,
        accounts.READ_ONLY_FIELDS,
        description=(
            "Adds client credentials to a proxy, with optional limits, quota, expiry and client networks. The "
            "first account of a proxy turns its authentication on."
        ),
        status=201,
        matches=True,
    ),
    Operation(
        "GET",
        _ACCOUNT,
        "proxy.read",
        "getAccount",
        "Show an account",
        account_handlers.get_account,
        description=(
            "Returns the settings of an account and what it has used in the current period. The password is "
            "never returned."
        ),
        matches=True,
    ),
    Operation(
        "PUT",
        _ACCOUNT,
        "proxy.write",
        "replaceAccount",
        "Update an account",
        account_handlers.update_account,
        AccountUpdate,
        _READ_ONLY,
        description=(
            "Changes the given fields and keeps all others; PUT and PATCH are the same here. A new password or a "
            "disabled account ends the account's open connections."
        ),
        matches=True,
    ),
    Operation(
        "PATCH",
        _ACCOUNT,
        "proxy.write",
        "updateAccount",
        "Update an account",
        account_handlers.update_account,
        AccountUpdate,
        _READ_ONLY,
        description=(
            "Changes the given fields and keeps all others. A new password or a disabled account ends the "
            "account's open connections."
        ),
        matches=True,
    ),
    Operation(
        "DELETE",
        _ACCOUNT,
        "proxy.write",
        "deleteAccount",
        "Delete an account",
        account_handlers.delete_account,
        description=(
            "Removes the account and ends its open connections. Clients that send its credentials get 407 from then on."
        ),
        matches=True,
    ),
    Operation(
        "POST",
        f"{_ACCOUNT}/reset-usage",
        "proxy.write",
        "resetAccountUsage",
        "Reset the usage of an account to zero",
        account_handlers.reset_usage,
        description=(
            "Sets the bytes that the account has used in the current period to zero. An account over its quota "
            "can be used again at once."
        ),
    ),
)
