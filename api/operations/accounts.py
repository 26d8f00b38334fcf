"""The accounts of a proxy: several client credentials."""

from __future__ import annotations

from api.openapi.schemas.accounts import Accounts, DeletedAccount, OneAccount
from api.operations.operation import PROXY, create, delete, get, post, resource, update
from api.resources import accounts as handlers
from api.services.accounts import READ_ONLY_FIELDS
from config.model.accounts import AccountInput, AccountUpdate

_ONE = "/{username}"
_READ_ONLY = READ_ONLY_FIELDS | {"username"}

TABLE = resource(f"{PROXY}/accounts", read="proxy.read", write="proxy.write")(
    get("", "listAccounts", handlers.list_accounts, Accounts),
    create(
        "",
        "createAccount",
        handlers.create_account,
        OneAccount,
        body=AccountInput,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    get(_ONE, "getAccount", handlers.get_account, OneAccount, if_match=True),
    *update(
        _ONE,
        ("replaceAccount", "updateAccount"),
        handlers.update_account,
        OneAccount,
        body=AccountUpdate,
        read_only=_READ_ONLY,
        if_match=True,
    ),
    delete(_ONE, "deleteAccount", handlers.delete_account, DeletedAccount, if_match=True),
    post(f"{_ONE}/reset-usage", "resetAccountUsage", handlers.reset_usage, OneAccount, audit="account.usage_reset"),
)
