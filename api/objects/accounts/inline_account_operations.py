"""The operations on the accounts of a proxy."""

from __future__ import annotations

from typing import Any

from actors.bus.messages.accounts import AccountActivity
from api.call import Call, Reply
from api.engine.operation import PROXY, create, delete, get, post, resource, update
from api.engine.records import view_of
from api.objects.accounts.account_activity import usage_view
from api.objects.accounts.account_responses import Accounts, DeletedAccount, OneAccount
from api.objects.accounts.inline_accounts import READ_ONLY_FIELDS, find
from api.objects.proxies.proxy_cache import StoredProxy
from config.model.accounts import AccountInput, AccountUpdate, ProxyAccount


def list_accounts(call: Call) -> Reply:
    """List accounts.

    Returns the accounts of a proxy with their limits, quota and usage. Passwords are never returned.
    """
    proxy = call.services.proxies.get(call.params["proxy_id"])
    states = call.services.accounts.usage(proxy)
    views = [_view(account, states[account.id]) for account in proxy.record.accounts]
    return Reply({"accounts": views, "total": len(views)})


def create_account(call: Call) -> Reply:
    """Create an account.

    Adds client credentials to a proxy, with optional limits, quota, expiry and client networks. The first account of a
    proxy turns its authentication on.
    """
    proxy_id = call.params["proxy_id"]
    proxy = call.services.accounts.add(proxy_id, call.body, call.if_match)
    return _one(call, proxy, call.body.username, 201)


def get_account(call: Call) -> Reply:
    """Show an account.

    Returns the settings of an account and what it has used in the current period. The password is never returned.
    """
    return _one(call, call.services.proxies.get(call.params["proxy_id"]), call.params["username"])


def update_account(call: Call) -> Reply:
    """Update an account.

    Changes the given fields and keeps all others. A new password or a disabled account ends the account's open
    connections.
    """
    username = call.params["username"]
    proxy = call.services.accounts.update(call.params["proxy_id"], username, call.body, call.if_match)
    return _one(call, proxy, username)


def delete_account(call: Call) -> Reply:
    """Delete an account.

    Removes the account and ends its open connections. Clients that send its credentials get 407 from then on.
    """
    username = call.params["username"]
    call.services.accounts.remove(call.params["proxy_id"], username, call.if_match)
    return Reply({"username": username, "deleted": True})


def reset_usage(call: Call) -> Reply:
    """Reset the usage of an account to zero.

    Sets the bytes that the account has used in the current period to zero. An account over its quota can be used again
    at once.
    """
    proxy = call.services.proxies.get(call.params["proxy_id"])
    call.services.account_activity.reset(find(proxy.record, call.params["username"]).id)
    return _one(call, proxy, call.params["username"])


def _one(call: Call, proxy: StoredProxy, username: str, status: int = 200) -> Reply:
    account = find(proxy.record, username)
    view = _view(account, call.services.accounts.usage(proxy)[account.id])
    return Reply({"account": view}, status, proxy.revision)


def _view(account: ProxyAccount, activity: AccountActivity) -> dict[str, Any]:
    return {**view_of(account), "usage": usage_view(activity, account.quota)}


_ONE = "/{username}"
_READ_ONLY = READ_ONLY_FIELDS | {"username"}

ROWS = resource(f"{PROXY}/accounts", read="proxy.read", write="proxy.write")(
    get("", "listAccounts", list_accounts, Accounts),
    create(
        "",
        "createAccount",
        create_account,
        OneAccount,
        body=AccountInput,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    get(_ONE, "getAccount", get_account, OneAccount, if_match=True),
    *update(
        _ONE,
        ("replaceAccount", "updateAccount"),
        update_account,
        OneAccount,
        body=AccountUpdate,
        read_only=_READ_ONLY,
        if_match=True,
    ),
    delete(_ONE, "deleteAccount", delete_account, DeletedAccount, if_match=True),
    post(f"{_ONE}/reset-usage", "resetAccountUsage", reset_usage, OneAccount, audit="account.usage_reset"),
)
