"""`proxyfleet accounts …`: accounts of the fleet and those of one proxy, their limits and quotas, what they have used.

Where a command takes an account, `PROXY USERNAME` names one of a proxy's own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, add_group, command, confirm
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, account_id, find_id, names
from api.cli.quantities import Size
from api.cli.remote.account_fields import CONNECTIONS, EXPIRES, PERIOD, QUOTA, parsed
from api.cli.remote.plans import quota_of
from api.cli.request_body import FileOption, body_of, require_changes, set_option
from api.cli.terminal.completion import plan_names, proxy_names
from api.cli.terminal.field_groups import Fields
from api.cli.terminal.output import Column, inside
from api.cli.terminal.secret_input import StdinOption, password

group = typer.Typer(help="Accounts: limits, quotas, what was used.", no_args_is_help=True)

AccountArgument = Annotated[
    str,
    typer.Argument(metavar="ACCOUNT|PROXY", help="The account's user name or id; or a proxy, before a user name."),
]
UsernameArgument = Annotated[
    str | None, typer.Argument(metavar="USERNAME", help="The user name of an account of the proxy's own.")
]
NewArgument = Annotated[
    str, typer.Argument(metavar="USERNAME|PROXY", help="The user name; or a proxy, before the user name.")
]
FIELDS: dict[str, Any] = {
    "quota.bytes": QUOTA,
    "quota.period": PERIOD,
    "limits.connections": CONNECTIONS,
    "expires_at": EXPIRES,
    "plan": Annotated[
        str | None,
        typer.Option("--plan", help="A plan's name; '--set plan=null' takes it away.", autocompletion=plan_names),
    ],
    "policy": Annotated[
        str | None,
        typer.Option("--policy", help="A policy that is asked before that of the plan; '--set policy=null'."),
    ],
    "proxies.ids": Annotated[
        list[str] | None,
        typer.Option("--proxy", help="Only for this proxy; may be given several times.", autocompletion=proxy_names),
    ],
    "proxies.tags": Annotated[
        list[str] | None, typer.Option("--proxy-tag", help="Only for proxies with this tag; may be repeated.")
    ],
    "certificates": Annotated[
        list[str] | None,
        typer.Option(
            "--certificate",
            help="A client's certificate: CN=, DNS:, URI: or SHA256: before its value; may be repeated.",
        ),
    ],
    "tags": Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be given several times.")],
}
"""Options of `create` and `update` by the field of the API that they set."""
_OF_THE_FLEET = {
    "plan": "--plan",
    "policy": "--policy",
    "proxies.ids": "--proxy",
    "proxies.tags": "--proxy-tag",
    "tags": "--tag",
}
"""Options that accounts of one proxy don't have."""
ENABLED = Annotated[bool | None, typer.Option("--enable/--disable", help="Allow or deny its use.", show_default=False)]

SetOption = Annotated[list[str] | None, set_option("limits.bandwidth_out=1Mbit/s", 'allow_clients=["192.0.2.0/24"]')]


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    from api.cli.remote import account_files

    account_files.add_commands(group)
    add_group(app, "accounts", group)


def _own(account: Any, name: str, text: Any) -> Any:
    """`text`, or that the account has the plan's where it has no `name` of its own."""
    own = account.get(name)
    inherits = not any(each is not None for each in own.values()) if isinstance(own, dict) else own is None
    return "as plan" if account.get("plan") and inherits else text


def _proxies(account: Any) -> Any:
    """The proxies that it reaches; `_named` has put names in place of ids."""
    proxies = account["proxies"]
    if account["inline"]:
        return f"{proxies['names'][0]} alone"
    return "all" if proxies.get("all") else Fields(proxies)


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


_COMMON = (
    Column("CONNECTIONS", _connections, right=True),
    Column("USED", lambda row: Size(inside(row, "usage.bytes") or 0), right=True),
    Column("QUOTA", lambda row: _own(row, "quota", quota_of(row)), right=True),
    Column("PERIOD", lambda row: _own(row, "quota", inside(row, "quota.period"))),
    Column("EXPIRES", "expires_at"),
)
COLUMNS = (Column("USERNAME", "username"), Column("ENABLED", "enabled"), *_COMMON)
FLEET_COLUMNS = (
    Column("USERNAME", "username"),
    Column("STATUS", "status"),
    Column("PLAN", "plan"),
    Column("PROXIES", _proxies, spare=1),
    *_COMMON,
    Column("TAGS", "tags", spare=2),
    Column("ID", "id", whole=True),
)


@command(group, "list")
def list_accounts(
    session: Session,
    proxy: Annotated[
        str | None, typer.Argument(metavar="PROXY", help="Only this proxy's own.", autocompletion=proxy_names)
    ] = None,
    text: Annotated[str | None, typer.Option("--search", help="A part of the user name or of the metadata.")] = None,
    plan: Annotated[str | None, typer.Option("--plan", help="Only of this plan.", autocompletion=plan_names)] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only with this tag.")] = None,
    status: Annotated[
        Literal["active", "disabled", "expired", "quota_reached"] | None,
        typer.Option("--status", help="Only of this status."),
    ] = None,
    sort: Annotated[
        str | None,
        typer.Option("--sort", help="username, created_at, last_seen_at, usage; - reverses it. By default username."),
    ] = None,
) -> None:
    """List the accounts of the fleet, or those of one proxy, with what they have used."""
    if proxy is not None:
        data = session.api.get(f"/proxies/{find_id(session.api, PROXY, proxy)}/accounts")
        session.out.data(data, lambda: session.out.table(COLUMNS, data["accounts"], "There is no account."))
        return
    query = {"q": text, "plan": plan, "tag": tag, "status": status, "sort": sort}
    found = list(session.api.cursor_pages("/accounts", "accounts", **query))
    data = {"accounts": found, "next_cursor": None}
    session.out.data(data, lambda: session.out.table(FLEET_COLUMNS, _named(session, found), "There is no account."))


@command(group, "show")
def show_account(session: Session, account: AccountArgument, username: UsernameArgument = None) -> None:
    """Show an account."""
    data = session.api.get(_place(session, account, username, inline=True).path)
    session.out.data(data, lambda: session.out.details(_details(*_named(session, [data["account"]]))))
    _warn(session, data)


@command(group, "create", fields=FIELDS)
def create_account(
    session: Session,
    name: NewArgument,
    username: UsernameArgument = None,
    *,
    fields: dict[str, Any],
    password_stdin: StdinOption = False,
    without_password: Annotated[
        bool, typer.Option("--without-password", help="With credentials only; of a socks4 proxy: by its name only.")
    ] = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Add an account; its password is asked for.

    With the first account of a proxy's own, all clients of that proxy must sign in.
    """
    wanted = name if username is None else username
    _refuse_of_the_fleet(fields, username)
    body = body_of({"username": wanted, **_parsed(session, fields)}, settings, file)
    given = [each for each in ("password", "password_hash") if body.get(each) is not None]
    if without_password and (given or password_stdin):
        raise CommandError("--without-password and a password don't go together", "Give one of them", Status.USAGE)
    if not without_password and (password_stdin or not given):
        body["password"] = password(f"Password of {wanted}", password_stdin, twice=True)
    path = "/accounts" if username is None else f"/proxies/{find_id(session.api, PROXY, name)}/accounts"
    data = session.api.post(path, body)
    where = f"({data['account']['id']})" if username is None else f"to {name}"
    session.out.done(data, f"{wanted} is added {where}.")
    _warn(session, data)


@command(group, "update", fields={**FIELDS, "enabled": ENABLED})
def update_account(
    session: Session,
    account: AccountArgument,
    username: UsernameArgument = None,
    *,
    fields: dict[str, Any],
    password_stdin: StdinOption = False,
    new_password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Change an account: only what is given changes."""
    _refuse_of_the_fleet(fields, username)
    body = body_of(_parsed(session, fields), settings, file)
    if new_password or password_stdin:
        body["password"] = password(f"New password of {username or account}", password_stdin, twice=True)
    require_changes(body, "accounts")
    data = session.api.patch(_place(session, account, username).path, body)
    session.out.done(data, f"{data['account']['username']} is changed.")
    _warn(session, data)


@command(group, "delete")
def delete_account(
    session: Session, account: AccountArgument, username: UsernameArgument = None, yes: YesOption = False
) -> None:
    """Remove an account; its connections and credentials end."""
    place = _place(session, account, username)
    confirm(f"Remove the account {place.title}?", yes)
    data = session.api.delete(place.path)
    session.out.done(data, f"{username or account} is removed.")
    if username is not None and session.out.format != "json":
        _note_last_account(session, account)


@command(group, "reset-usage")
def reset_usage(session: Session, account: AccountArgument, username: UsernameArgument = None) -> None:
    """Reset the usage of an account's quota to zero."""
    data = session.api.post(f"{_place(session, account, username).path}/reset-usage")
    session.out.done(data, f"The usage of {username or account} is reset.")


def _note_last_account(session: Session, proxy: str) -> None:
    """Without its last account a proxy rejects all clients, which a user who removed one may not expect."""
    left = session.api.get(f"/proxies/{find_id(session.api, PROXY, proxy)}")["proxy"]
    if left["auth"]["enabled"] and not left["auth"]["username"] and not left["accounts"]:
        way = f"proxyfleet proxies update {proxy} --no-sign-in opens it"
        session.out.note(f"note: that was the last account, so {proxy} rejects all clients; {way}")


def _warn(session: Session, data: dict[str, Any]) -> None:
    for each in data.get("warnings") or () if session.out.format != "json" else ():
        session.out.note(f"warning: {each['field']}: {each['warning']}")


def _details(account: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of `accounts show`; those that only accounts of the fleet have come where there are any."""
    left = inside(account, "usage.remaining")
    fleet = (
        "id",
        "status",
        "plan",
        "policy",
        "certificates",
        "tags",
        "metadata",
        "allow_destinations",
        "deny_destinations",
        "schedule",
    )
    return [
        ("username", account["username"]),
        ("enabled", account["enabled"]),
        *((name.replace("_", " "), account[name]) for name in fleet if account.get(name)),
        *([("proxies", _proxies(account))] if "proxies" in account else []),
        ("connections", _connections(account)),
        ("quota", _own(account, "quota", quota_of(account))),
        ("period", _own(account, "quota", inside(account, "quota.period"))),
        ("used", Size(inside(account, "usage.bytes") or 0)),
        ("in", Size(inside(account, "usage.bytes_in") or 0)),
        ("out", Size(inside(account, "usage.bytes_out") or 0)),
        ("left", None if left is None else Size(left)),
        ("resets", inside(account, "usage.period_end")),
        ("limits", _own(account, "limits", Fields(account["limits"] or {}))),
        ("networks", account["allow_clients"] or "any"),
        ("expires", account["expires_at"]),
        ("created", account["created_at"]),
    ]


def _refuse_of_the_fleet(fields: dict[str, Any], username: str | None) -> None:
    """Raises `CommandError` for the first option that an account of one proxy, with a `username`, doesn't have."""
    given = [option for field, option in _OF_THE_FLEET.items() if fields.get(field) is not None]
    if given and username is not None:
        hint = "Leave the proxy before the user name out, and --proxy PROXY says where the account may be used"
        raise CommandError(f"{given[0]} is for accounts of the fleet", hint, status=Status.USAGE)


def _parsed(session: Session, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields as the API takes them. Raises `CommandError`."""
    found = parsed(fields)
    if found["proxies.ids"] is not None:
        found["proxies.ids"] = [find_id(session.api, PROXY, each) for each in found["proxies.ids"]]
    return found


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
