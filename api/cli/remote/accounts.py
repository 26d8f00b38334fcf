"""`proxyfleet accounts …`: who may use a proxy, how much, and what they have used."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import PROXY, find_id
from api.cli.quantities import SIZE_EXAMPLES, Size, size_of
from api.cli.remote.proxies import ProxyArgument
from api.cli.request_body import FileOption, body_of, set_option
from api.cli.terminal.field_groups import Fields
from api.cli.terminal.output import Column
from api.cli.terminal.secret_input import StdinOption, password
from api.cli.time_options import from_now

group = typer.Typer(help="Accounts of a proxy: limits, quotas, what was used.", no_args_is_help=True)

AccountArgument = Annotated[str, typer.Argument(metavar="USERNAME", help="The account's user name.")]
EnabledOption = Annotated[bool | None, typer.Option("--enable/--disable", help="May it be used?", show_default=False)]
QuotaOption = Annotated[
    str | None,
    typer.Option(
        "--quota",
        metavar="SIZE",
        help=f"Bytes in both directions in each period ({SIZE_EXAMPLES}); 0 for no limit.",
    ),
]
PeriodOption = Annotated[
    Literal["day", "week", "month", "total"] | None, typer.Option("--period", help="Of the quota.")
]
ConnectionsOption = Annotated[
    int | None, typer.Option("--connections", min=0, help="At the same time; 0 for no limit.")
]
ExpiresOption = Annotated[
    str | None, typer.Option("--expires", help="When it ends: 30d from now, or a date and time (UTC).")
]

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
    session.out.data(data, lambda: session.out.details(_told(data["account"])))


_OPTIONS = {
    "quota.bytes": "--quota",
    "quota.period": "--period",
    "limits.connections": "--connections",
    "expires_at": "--expires",
    "enabled": "--enable",
}
"""What the API calls otherwise."""


@command(group, "create", _OPTIONS)
def create_account(
    session: Session,
    proxy: ProxyArgument,
    username: AccountArgument,
    quota: QuotaOption = None,
    period: PeriodOption = None,
    connections: ConnectionsOption = None,
    expires: ExpiresOption = None,
    password_stdin: StdinOption = False,
    without_password: Annotated[
        bool, typer.Option("--without-password", help="For socks4, which has user names alone.")
    ] = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Add an account; its password is asked for. From the first one on, all clients of the proxy must sign in."""
    body = body_of({"username": username, **_given(quota, period, connections, expires, None)}, settings, file)
    if not without_password:
        body["password"] = password(f"Password of {username}", password_stdin, twice=True)
    data = session.api.post(_path(session, proxy), body)
    session.out.data(data, lambda: session.out.message(f"{username} is added to {proxy}."))


@command(group, "update", _OPTIONS)
def update_account(
    session: Session,
    proxy: ProxyArgument,
    username: AccountArgument,
    quota: QuotaOption = None,
    period: PeriodOption = None,
    connections: ConnectionsOption = None,
    expires: ExpiresOption = None,
    enabled: EnabledOption = None,
    password_stdin: StdinOption = False,
    new_password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Change an account: only what is given changes."""
    body = body_of(_given(quota, period, connections, expires, enabled), settings, file)
    if new_password or password_stdin:
        body["password"] = password(f"New password of {username}", password_stdin, twice=True)
    if not body:
        raise CommandError("Nothing is given that should change", "See proxyfleet accounts update --help", Status.USAGE)
    data = session.api.patch(_path(session, proxy, username), body)
    session.out.data(data, lambda: session.out.message(f"{username} is changed."))


@command(group, "delete")
def delete_account(session: Session, proxy: ProxyArgument, username: AccountArgument, yes: YesOption = False) -> None:
    """Remove an account; its connections end."""
    path = _path(session, proxy, username)
    session.confirm(f"Remove the account {username} of {proxy}?", yes)
    data = session.api.delete(path)
    session.out.data(data, lambda: session.out.message(f"{username} is removed."))
    if session.out.form != "json":
        _warn_of_nobody(session, proxy)


@command(group, "reset-usage")
def reset_usage(session: Session, proxy: ProxyArgument, username: AccountArgument) -> None:
    """Let an account have used nothing of its quota."""
    data = session.api.post(f"{_path(session, proxy, username)}/reset-usage")
    session.out.data(data, lambda: session.out.message(f"{username} has used nothing."))


def _warn_of_nobody(session: Session, proxy: str) -> None:
    """Without its last account a proxy stays closed, which nobody who only removed somebody expects."""
    left = session.api.get(_path(session, proxy).removesuffix("/accounts"))["proxy"]
    if left["auth"]["enabled"] and not left["auth"]["username"] and not left["accounts"]:
        way = f"proxyfleet proxies update {proxy} --no-sign-in opens it"
        session.out.note(f"note: that was the last account, so {proxy} lets nobody in; {way}")


def _told(account: dict[str, Any]) -> list[tuple[str, Any]]:
    """What people want to know of an account."""
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
        ("begins anew", usage["period_end"]),
        ("limits", Fields(account["limits"])),
        ("networks", account["allow_clients"] or "any"),
        ("expires", account["expires_at"]),
        ("created", account["created_at"]),
    ]


def _given(
    quota: str | None, period: str | None, connections: int | None, expires: str | None, enabled: bool | None
) -> dict[str, Any]:
    return {
        "quota.bytes": None if quota is None else _bytes(quota),
        "quota.period": period,
        "limits.connections": connections,
        "expires_at": from_now(expires) if expires else None,
        "enabled": enabled,
    }


def _bytes(quota: str) -> int:
    try:
        return size_of(quota)
    except ValueError as error:
        raise CommandError(f"--quota {quota!r}: {error}", status=Status.USAGE) from error


def _path(session: Session, proxy: str, username: str | None = None) -> str:
    path = f"/proxies/{find_id(session.api, PROXY, proxy)}/accounts"
    return path if username is None else f"{path}/{quoted(username)}"
