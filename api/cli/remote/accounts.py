"""`proxyfleet accounts …`: accounts of the fleet and those of one proxy, their limits and quotas, what they have used;
`credentials …`: their short-lived ones; `plans …`: what accounts have in common.

Where a command takes an account, `PROXY USERNAME` names one of a proxy's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from api.cli.client import quoted
from api.cli.commands import YES, Commands, Given, Session, command, confirm, new_group, warn
from api.cli.documents import body_of, require_changes, whole_body
from api.cli.errors import CommandError, Status
from api.cli.options import (
    PLAN,
    PROXY,
    ResourceKind,
    account_id,
    argument,
    choice,
    find,
    find_id,
    flag,
    names,
    number,
    switch,
    text,
    texts,
)
from api.cli.quantities import SIZE_EXAMPLES, SPANS, Quantity, bytes_of, moment_option, seconds, size, span_option
from api.cli.terminal import PASSWORD_STDIN, Column, fields_of, inside, pairs_of, password, titled

_CLIENTS = {
    "limits.clients": number("--clients", "Client addresses that may use it, over all proxies; 0 for any.", min=0),
    "limits.clients_window": span_option("--clients-window", "How long an address counts after its last use (10m)."),
}
_LIMITS = {
    "quota.bytes": text(
        "--quota",
        f"Bytes in both directions in each period ({SIZE_EXAMPLES}); 0 for no limit.",
        metavar="SIZE",
        parse=bytes_of,
    ),
    "quota.period": choice("--period", "The period of the quota.", ("day", "week", "month", "total")),
    "limits.connections": number("--connections", "At the same time over all proxies; 0 for no limit.", min=0),
    **_CLIENTS,
}
FIELDS = {
    **_LIMITS,
    "expires_at": moment_option("--expires", "When it expires: 30d from now, or a date and time (UTC).", 1),
    "plan": text("--plan", "A plan's name; '--set plan=null' takes it away.", complete=PLAN),
    "policy": text("--policy", "A policy that is asked before that of the plan; '--set policy=null'."),
    "proxies.ids": texts("--proxy", "Only for this proxy; may be given several times.", of=PROXY),
    "proxies.tags": texts("--proxy-tag", "Only for proxies with this tag; may be repeated."),
    "certificates": texts(
        "--certificate", "A client's certificate: CN=, DNS:, URI: or SHA256: before its value; may be repeated."
    ),
    "tags": texts("--tag", "A tag; may be given several times."),
}
_OF_THE_FLEET = ("plan", "policy", "proxies.ids", "proxies.tags", "tags")
"""Fields that accounts of one proxy don't have."""
_BODY = whole_body("limits.bandwidth_out=1Mbit/s", 'allow_clients=["192.0.2.0/24"]')
_ACCOUNT = argument("ACCOUNT|PROXY", "The account's user name or id; or a proxy, before a user name.")
_USERNAME = argument("USERNAME", "The user name of an account of the proxy's own.", default=None)
_ONE = {"account": _ACCOUNT, "username": _USERNAME}

group = new_group("accounts", "Accounts: limits, quotas, what was used.")


def _quota(row: Any) -> Quantity | None:
    """The quota in bytes, None without one."""
    count = inside(row, "quota.bytes")
    return size(count, is_setting=True) if count else None


def _own(account: Any, name: str, cell: Any) -> Any:
    """`cell`, or that the account has the plan's where it has no `name` of its own."""
    own = account.get(name)
    inherits = not any(each is not None for each in own.values()) if isinstance(own, dict) else own is None
    return "as plan" if account.get("plan") and inherits else cell


def _proxies(account: Any) -> Any:
    """The proxies that it reaches; `_named` has put names in place of ids."""
    proxies = account["proxies"]
    if account["inline"]:
        return f"{proxies['names'][0]} alone"
    return "all" if proxies.get("all") else fields_of(proxies)


def _named(session: Session, accounts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The accounts, for people: with names of proxies in place of ids, unless the caller may not list proxies."""
    if not any(inside(each, "proxies.ids") for each in accounts):
        return accounts
    known = names(session.api, PROXY)

    def named(given: dict[str, Any]) -> dict[str, Any]:
        others = {name: value for name, value in given.items() if name != "ids"}
        return {"names": [known.get(each, each) for each in given["ids"]], **others} if "ids" in given else others

    return [{**each, "proxies": named(each["proxies"])} if "proxies" in each else each for each in accounts]


def _connections(account: Any) -> Any:
    own = account.get("active_connections")
    return inside(account, "usage.active_connections") if own is None else own


def _used(account: Any, name: str = "bytes") -> Quantity:
    return size(inside(account, f"usage.{name}") or 0)


_COMMON = (
    *titled(("CONNECTIONS", _connections), ("USED", _used), right=True),
    Column("QUOTA", lambda row: _own(row, "quota", _quota(row)), right=True),
    *titled(("PERIOD", lambda row: _own(row, "quota", inside(row, "quota.period"))), "expires_at"),
)
COLUMNS = (Column("USERNAME", "username"), Column("ENABLED", "enabled"), *_COMMON)
FLEET_COLUMNS = (
    *titled("username", "status", "plan"),
    Column("PROXIES", _proxies, spare=1),
    *_COMMON,
    Column("TAGS", "tags", spare=2),
    Column("ID", "id", whole=True),
)
_FILTERS = {
    "proxy": argument("PROXY", "Only this proxy's own.", of=PROXY, default=None),
    "q": text("--search", "A part of the user name or of the metadata."),
    "plan": text("--plan", "Only of this plan.", complete=PLAN),
    "tag": text("--tag", "Only with this tag."),
    "status": choice("--status", "Only of this status.", ("active", "disabled", "expired", "quota_reached")),
    "sort": text(
        "--sort", "username, created_at, last_seen_at, usage, rate, connections; - reverses it. By default username."
    ),
}


@command(group, "list", _FILTERS)
def list_accounts(session: Session, proxy: str | None, fields: Given) -> None:
    """List the accounts of the fleet, or those of one proxy, with what they have used."""
    nothing = "There is no account."
    if proxy is not None:
        data = session.api.get(f"/proxies/{proxy}/accounts")
        session.out.data(data, lambda: session.out.table(COLUMNS, data["accounts"], nothing))
        return
    found = list(session.api.pages("/accounts", "accounts", **fields))
    data = {"accounts": found, "next_cursor": None}
    session.out.data(data, lambda: session.out.table(FLEET_COLUMNS, _named(session, found), nothing))


@command(group, "show", _ONE)
def show_account(session: Session, account: str, username: str | None) -> None:
    """Show an account."""
    data = session.api.get(_place(session, account, username, inline=True).path)
    session.out.data(data, lambda: session.out.details(_details(*_named(session, [data["account"]]))))
    warn(session, data)


_CREATE = {
    "name": argument("USERNAME|PROXY", "The user name; or a proxy, before the user name."),
    "username": _USERNAME,
    **FIELDS,
    "password_stdin": PASSWORD_STDIN,
    "without_password": flag("--without-password", "With credentials only; of a socks4 proxy: by its name only."),
    **_BODY,
}


@command(group, "create", _CREATE)
def create_account(session: Session, name: str, username: str | None, password_stdin: bool, fields: Given) -> None:
    """Add an account; its password is asked for.

    With the first account of a proxy's own, all clients of that proxy must sign in.
    """
    without_password = fields.pop("without_password")
    wanted = name if username is None else username
    _refuse_of_the_fleet(fields, username)
    body = body_of({"username": wanted, **fields})
    given = [each for each in ("password", "password_hash") if body.get(each) is not None]
    if without_password and (given or password_stdin):
        raise CommandError("--without-password and a password don't go together", "Give one of them", Status.USAGE)
    if not without_password and (password_stdin or not given):
        body["password"] = password(f"Password of {wanted}", password_stdin, twice=True)
    path = "/accounts" if username is None else f"/proxies/{find_id(session.api, PROXY, name)}/accounts"
    data = session.api.post(path, body)
    where = f"({data['account']['id']})" if username is None else f"to {name}"
    session.out.done(data, f"{wanted} is added {where}.")
    warn(session, data)


_UPDATE = {
    **_ONE,
    **FIELDS,
    "enabled": switch("--enable/--disable", "Allow or deny its use."),
    "password_stdin": PASSWORD_STDIN,
    "new_password": flag("--password", "Ask for a new password."),
    **_BODY,
}


@command(group, "update", _UPDATE)
def update_account(session: Session, account: str, username: str | None, password_stdin: bool, fields: Given) -> None:
    """Change an account: only what is given changes."""
    _refuse_of_the_fleet(fields, username)
    new_password = fields.pop("new_password") or password_stdin
    body = body_of(fields)
    if new_password:
        body["password"] = password(f"New password of {username or account}", password_stdin, twice=True)
    require_changes(body, "accounts")
    data = session.api.patch(_place(session, account, username).path, body)
    session.out.done(data, f"{data['account']['username']} is changed.")
    warn(session, data)


@command(group, "delete", {**_ONE, "yes": YES})
def delete_account(session: Session, account: str, username: str | None, yes: bool) -> None:
    """Remove an account; its connections and credentials end."""
    place = _place(session, account, username)
    confirm(f"Remove the account {place.title}?", yes)
    data = session.api.delete(place.path)
    session.out.done(data, f"{username or account} is removed.")
    if username is not None and session.out.format != "json":
        _note_last_account(session, account)


@command(group, "reset-usage", _ONE)
def reset_usage(session: Session, account: str, username: str | None) -> None:
    """Reset the usage of an account's quota to zero."""
    data = session.api.post(f"{_place(session, account, username).path}/reset-usage")
    session.out.done(data, f"The usage of {username or account} is reset.")


def _note_last_account(session: Session, proxy: str) -> None:
    """Without its last account a proxy rejects all clients, which a user who removed one may not expect."""
    left = session.api.get(f"/proxies/{find_id(session.api, PROXY, proxy)}")["proxy"]
    if left["auth"]["enabled"] and not left["auth"]["username"] and not left["accounts"]:
        way = f"proxyfleet proxies update {proxy} --no-sign-in opens it"
        session.out.note(f"note: that was the last account, so {proxy} rejects all clients; {way}")


_FLEET_DETAILS = (
    *("id", "status", "plan", "policy", "certificates", "tags", "metadata"),
    *("allow_destinations", "deny_destinations", "schedule"),
)
"""Fields that only accounts of the fleet have; those without a value are left out."""


def _details(account: dict[str, Any]) -> list[tuple[str, Any]]:
    left = inside(account, "usage.remaining")
    return [
        *pairs_of(account, ("username", "enabled", *(name for name in _FLEET_DETAILS if account.get(name)))),
        *([("proxies", _proxies(account))] if "proxies" in account else []),
        ("connections", _connections(account)),
        ("quota", _own(account, "quota", _quota(account))),
        ("period", _own(account, "quota", inside(account, "quota.period"))),
        ("used", _used(account)),
        ("in", _used(account, "bytes_in")),
        ("out", _used(account, "bytes_out")),
        ("left", None if left is None else size(left)),
        ("resets", inside(account, "usage.period_end")),
        ("limits", _own(account, "limits", _limits(account))),
        ("networks", account["allow_clients"] or "any"),
        ("expires", account["expires_at"]),
        ("created", account["created_at"]),
    ]


def _refuse_of_the_fleet(fields: Given, username: str | None) -> None:
    """Raises `CommandError` for the first option that an account of one proxy, with a `username`, doesn't have."""
    given = [FIELDS[field].label for field in _OF_THE_FLEET if fields[field] is not None]
    if given and username is not None:
        hint = "Leave the proxy before the user name out, and --proxy PROXY says where the account may be used"
        raise CommandError(f"{given[0]} is for accounts of the fleet", hint, status=Status.USAGE)


@dataclass(frozen=True, slots=True)
class _Place:
    """An account: its path in the API, and how questions name it."""

    path: str
    title: str


def _place(session: Session, account: str, username: str | None, inline: bool = False) -> _Place:
    """The account of the fleet, or, with a `username`, the one of the proxy `account`. Raises `CommandError`."""
    if username is None:
        return _Place(f"/accounts/{quoted(account_id(session.api, account, inline))}", account)
    proxy = find_id(session.api, PROXY, account)
    return _Place(f"/proxies/{proxy}/accounts/{quoted(username)}", f"{username} of {account}")


def _limits(row: Any) -> Quantity:
    """Without the window where no number of clients goes with it."""
    limits = row["limits"] or {}
    return fields_of({name: each for name, each in limits.items() if name != "clients_window" or limits["clients"]})


plans = Commands(
    PLAN,
    "Plans: what accounts have in common.",
    (
        Column("NAME", "name"),
        Column("QUOTA", _quota, right=True),
        Column("PERIOD", "quota.period"),
        *titled(("LIMITS", _limits), "description", spare=True),
        Column("ID", "id", whole=True),
    ),
    (
        *("name", "id", "description"),
        ("quota", _quota),
        ("period", "quota.period"),
        ("limits", _limits),
        ("destinations", "allow_destinations"),
        ("denied destinations", "deny_destinations"),
        *("schedule", "policy", "egress", "disclose"),
        ("self-service", lambda plan: fields_of(plan["self_service"] or {})),
        "created_at",
    ),
    {
        "description": text("--description", "What it is for."),
        **_LIMITS,
        "policy": text("--policy", "The policy that judges requests; none: --set policy=null."),
        "disclose": switch("--disclose/--no-disclose", "Whether clients read which policy, rule and list refuse them."),
    },
    text("--name", "Another name."),
    ("limits.bandwidth_out=1Mbit/s", 'allow_destinations=["*.example"]', "quota=null"),
    texts={
        "update": "Change a plan, for all its accounts at once: only what is given changes.",
        "delete": "Delete a plan that no account has.",
    },
    name="Accounts refer to it by this name; or in a file.",
).group()


# --- credentials ---

credentials = new_group("credentials", "Credentials of accounts, such as one for each job.")

CREDENTIAL_ID = "crd_"


def ttl_of(given: str) -> float:
    """The seconds of `--ttl`. Raises `CommandError`."""
    from config.model.account_credentials import TTL_MAX

    return seconds(given, "--ttl", 1, TTL_MAX)


_OWNER = {"account": argument("ACCOUNT", "The account's user name or id.")}
_CREDENTIAL = {**_OWNER, "credential": argument("CREDENTIAL", "Its id or name.")}
_MINT = {
    **_OWNER,
    "ttl": text("--ttl", f"How long it lives, at most 400d. {SPANS}", metavar="SPAN", parse=ttl_of),
    "expires_at": moment_option("--expires", "Instead, when it expires: a date and time (UTC).", 1),
    "name": text("--name", "What it is for."),
    "allow_destinations": texts("--destination", "Only to this host, domain or network; may be given several times."),
    "allow_clients": texts("--network", "Only from this network; may be given several times."),
    "max_connections": number("--connections", "At the same time over all proxies; 0 for no limit.", min=0),
    **_CLIENTS,
    "quota.bytes": text("--quota", f"Bytes in total ({SIZE_EXAMPLES}).", metavar="SIZE", parse=bytes_of),
}
CREDENTIAL_COLUMNS = (
    Column("ID", "id", whole=True),
    *titled("name", "prefix", "expires_at"),
    *titled(("DESTINATIONS", "allow_destinations"), ("NETWORKS", "allow_clients"), spare=True),
    Column("QUOTA", _quota, right=True, spare=True),
    Column("CREATED", "created_at", spare=True),
)
CREDENTIAL_DETAILS = (
    *("id", "name", "prefix"),
    ("account_id", "account_id"),
    "expires_at",
    ("destinations", "allow_destinations"),
    ("networks", lambda credential: credential["allow_clients"] or "any"),
    ("quota", _quota),
    ("connections", lambda credential: credential["max_connections"] or None),
    ("clients", lambda credential: credential["limits"]["clients"] or None),
    "created_at",
)


def _kind(session: Session, account: str) -> ResourceKind:
    """The credentials of an account."""
    path = f"/accounts/{quoted(account_id(session.api, account))}/credentials"
    return ResourceKind("credential", "credentials", path=path, list_command="proxyfleet credentials list ACCOUNT")


@command(credentials, "list", _OWNER)
def list_credentials(session: Session, account: str) -> None:
    """List the credentials of an account."""
    data = {**_kind(session, account).listed(session.api), "next_cursor": None}
    session.out.data(
        data, lambda: session.out.table(CREDENTIAL_COLUMNS, data["credentials"], "There is no credential.")
    )


@command(credentials, "show", _CREDENTIAL)
def show_credential(session: Session, account: str, credential: str) -> None:
    """Show a credential; the secret itself is not stored."""
    found = _find(session, _kind(session, account), credential)
    session.out.data({"credential": found}, lambda: session.out.details(pairs_of(found, CREDENTIAL_DETAILS)))


@command(credentials, "mint", _MINT, {"ttl": "--ttl"}, aliases=("create",))
def mint_credential(session: Session, account: str, fields: Given) -> None:
    """Make a credential. Its secret is shown only once, alone on a line of standard output."""
    if (fields["ttl"] is None) == (fields["expires_at"] is None):
        raise CommandError("Give one of --ttl and --expires", "Such as --ttl 15m", Status.USAGE)
    data = session.api.post(_kind(session, account).path, body_of(fields))
    session.out.data(data, lambda: _show_once(session, data))


def _show_once(session: Session, data: dict[str, Any]) -> None:
    """The secret; at a terminal with a note, and alone in a pipe, where a script reads it."""
    session.out.line(data["secret"])
    if session.out.terminal:
        made = data["credential"]
        session.out.note(f"{made['id']} expires at {made['expires_at']}. The secret is shown only once.")


@command(credentials, "revoke", {**_CREDENTIAL, "yes": YES}, aliases=("delete",))
def revoke_credential(session: Session, account: str, credential: str, yes: bool) -> None:
    """Revoke a credential; its connections end within a second."""
    kind = _kind(session, account)
    found = _find(session, kind, credential)
    confirm(f"Revoke the credential {found['name'] or found['id']} ({found['prefix']}…)?", yes)
    data = session.api.delete(f"{kind.path}/{found['id']}")
    session.out.done(data, f"{found['name'] or found['id']} is revoked.")


def _find(session: Session, kind: ResourceKind, name_or_id: str) -> dict[str, Any]:
    """The credential as the API shows it; an id isn't looked for in the list. Raises `CommandError`."""
    if name_or_id.startswith(CREDENTIAL_ID):
        found: dict[str, Any] = session.api.get(f"{kind.path}/{quoted(name_or_id)}")["credential"]
        return found
    return find(session.api, kind, name_or_id)
