"""`proxyfleet accounts …`: users of a proxy, their limits and quotas, and what they have used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, command, confirm
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, find_id
from api.cli.quantities import SIZE_EXAMPLES, Size, size_of
from api.cli.remote.proxies import ProxyArgument
from api.cli.request_body import FileOption, body_of, require_changes, set_option
from api.cli.terminal.field_groups import Fields
from api.cli.terminal.output import Column
from api.cli.terminal.secret_input import StdinOption, password
from api.cli.time_options import from_now

group = typer.Typer(help="Accounts of a proxy: limits, quotas, what was used.", no_args_is_help=True)

AccountArgument = Annotated[str, typer.Argument(metavar="USERNAME", help="The account's user name.")]
FIELDS: dict[str, Any] = {
    "quota.bytes": Annotated[
        str | None,
        typer.Option(
            "--quota",
            metavar="SIZE",
            help=f"Bytes in both directions in each period ({SIZE_EXAMPLES}); 0 for no limit.",
        ),
    ],
    "quota.period": Annotated[
        Literal["day", "week", "month", "total"] | None, typer.Option("--period", help="The period of the quota.")
    ],
    "limits.connections": Annotated[
        int | None, typer.Option("--connections", min=0, help="At the same time; 0 for no limit.")
    ],
    "expires_at": Annotated[
        str | None, typer.Option("--expires", help="When it expires: 30d from now, or a date and time (UTC).")
    ],
}
"""Options of `create` and `update` by the field of the API that they set."""
ENABLED = Annotated[bool | None, typer.Option("--enable/--disable", help="Allow or deny its use.", show_default=False)]

SetOption = Annotated[list[str] | None, set_option("limits.bandwidth_out=1Mbit/s", 'allow_clients=["192.0.2.0/24"]')]

COLUMNS = (
    Column("USERNAME", "username"),
    Column("ENABLED", "enabled"),
    Column("CONNECTIONS", "usage.active_connections", right=True),
    Column("USED", lambda row: Size(row["usage"]["bytes"]), right=True),
    Column("QUOTA", lambda row: Size(row["quota"]["bytes"]) if row["quota"]["bytes"] else None, right=True),
    Column("PERIOD", "quota.period"),
    Column("EXPIRES", "expires_at"),
)


@command(group, "list")
def list_accounts(session: Session, proxy: ProxyArgument) -> None:
    """List the accounts of a proxy with what they have used."""
    data = session.api.get(_path(session, proxy))
    session.out.data(data, lambda: session.out.table(COLUMNS, data["accounts"], "There is no account."))


@command(group, "show")
def show_account(session: Session, proxy: ProxyArgument, username: AccountArgument) -> None:
    """Show an account."""
    data = session.api.get(_path(session, proxy, username))
    session.out.data(data, lambda: session.out.details(_details(data["account"])))


@command(group, "create", fields=FIELDS)
def create_account(
    session: Session,
    proxy: ProxyArgument,
    username: AccountArgument,
    fields: dict[str, Any],
    password_stdin: StdinOption = False,
    without_password: Annotated[
        bool, typer.Option("--without-password", help="For socks4, which has user names only.")
    ] = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Add an account; its password is asked for. With the first account, all clients of the proxy must sign in."""
    body = body_of({"username": username, **_parsed(fields)}, settings, file)
    if not without_password:
        body["password"] = password(f"Password of {username}", password_stdin, twice=True)
    data = session.api.post(_path(session, proxy), body)
    session.out.done(data, f"{username} is added to {proxy}.")


@command(group, "update", fields={**FIELDS, "enabled": ENABLED})
def update_account(
    session: Session,
    proxy: ProxyArgument,
    username: AccountArgument,
    fields: dict[str, Any],
    password_stdin: StdinOption = False,
    new_password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Change an account: only what is given changes."""
    body = body_of(_parsed(fields), settings, file)
    if new_password or password_stdin:
        body["password"] = password(f"New password of {username}", password_stdin, twice=True)
    require_changes(body, "accounts")
    data = session.api.patch(_path(session, proxy, username), body)
    session.out.done(data, f"{username} is changed.")


@command(group, "delete")
def delete_account(session: Session, proxy: ProxyArgument, username: AccountArgument, yes: YesOption = False) -> None:
    """Remove an account; its connections end."""
    path = _path(session, proxy, username)
    confirm(f"Remove the account {username} of {proxy}?", yes)
    data = session.api.delete(path)
    session.out.done(data, f"{username} is removed.")
    if session.out.format != "json":
        _note_last_account(session, proxy)


@command(group, "reset-usage")
def reset_usage(session: Session, proxy: ProxyArgument, username: AccountArgument) -> None:
    """Reset the usage of an account's quota to zero."""
    data = session.api.post(f"{_path(session, proxy, username)}/reset-usage")
    session.out.done(data, f"The usage of {username} is reset.")


def _note_last_account(session: Session, proxy: str) -> None:
    """Without its last account a proxy rejects all clients, which a user who removed one may not expect."""
    left = session.api.get(_path(session, proxy).removesuffix("/accounts"))["proxy"]
    if left["auth"]["enabled"] and not left["auth"]["username"] and not left["accounts"]:
        way = f"proxyfleet proxies update {proxy} --no-sign-in opens it"
        session.out.note(f"note: that was the last account, so {proxy} rejects all clients; {way}")


def _details(account: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of `accounts show`."""
    quota, usage = account["quota"], account["usage"]
    left = usage["remaining"]
    return [
        ("username", account["username"]),
        ("enabled", account["enabled"]),
        ("connections", usage["active_connections"]),
        ("quota", Size(quota["bytes"]) if quota["bytes"] else None),
        ("period", quota["period"]),
        ("used", Size(usage["bytes"])),
        ("in", Size(usage["bytes_in"])),
        ("out", Size(usage["bytes_out"])),
        ("left", None if left is None else Size(left)),
        ("resets", usage["period_end"]),
        ("limits", Fields(account["limits"])),
        ("networks", account["allow_clients"] or "any"),
        ("expires", account["expires_at"]),
        ("created", account["created_at"]),
    ]


def _parsed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with sizes as bytes and spans as moments. Raises `CommandError`."""
    quota, expires = fields["quota.bytes"], fields["expires_at"]
    return {
        **fields,
        "quota.bytes": None if quota is None else _bytes(quota),
        "expires_at": from_now(expires) if expires else None,
    }


def _bytes(quota: str) -> int:
    try:
        return size_of(quota)
    except ValueError as error:
        raise CommandError(f"--quota {quota!r}: {error}", status=Status.USAGE) from error


def _path(session: Session, proxy: str, username: str | None = None) -> str:
    path = f"/proxies/{find_id(session.api, PROXY, proxy)}/accounts"
    return path if username is None else f"{path}/{quoted(username)}"
