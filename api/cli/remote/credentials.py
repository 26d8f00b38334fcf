"""`proxyfleet credentials …`: secrets of an account that live for minutes to months."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, add_alias, add_group, command, confirm
from api.cli.errors import CommandError, Status
from api.cli.lookup import Kind, account_id, find
from api.cli.quantities import SIZE_EXAMPLES, Size
from api.cli.remote.account_fields import bytes_of
from api.cli.request_body import body_of
from api.cli.terminal.output import Column, inside
from api.cli.time_options import from_now, seconds

group = typer.Typer(help="Credentials of accounts, such as one for each job.", no_args_is_help=True)

AccountArgument = Annotated[str, typer.Argument(metavar="ACCOUNT", help="The account's user name or id.")]
CredentialArgument = Annotated[str, typer.Argument(metavar="CREDENTIAL", help="Its id or name.")]

CREDENTIAL_ID = "crd_"


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "credentials", group)


def _quota(credential: Any) -> Size | None:
    count = inside(credential, "quota.bytes")
    return Size(count, is_setting=True) if count else None


COLUMNS = (
    Column("ID", "id", whole=True),
    Column("NAME", "name"),
    Column("PREFIX", "prefix"),
    Column("EXPIRES", "expires_at"),
    Column("DESTINATIONS", "allow_destinations", spare=True),
    Column("NETWORKS", "allow_clients", spare=True),
    Column("QUOTA", _quota, right=True, spare=True),
    Column("CREATED", "created_at", spare=True),
)
_OPTIONS = {
    "ttl": "--ttl",
    "expires_at": "--expires",
    "allow_destinations": "--destination",
    "allow_clients": "--network",
    "max_connections": "--connections",
    "quota.bytes": "--quota",
}
"""Options by the API's field, where the names differ."""


@command(group, "list")
def list_credentials(session: Session, account: AccountArgument) -> None:
    """List the credentials of an account."""
    found = list(session.api.cursor_pages(_path(session, account), "credentials"))
    data = {"credentials": found, "next_cursor": None}
    session.out.data(data, lambda: session.out.table(COLUMNS, found, "There is no credential."))


@command(group, "show")
def show_credential(session: Session, account: AccountArgument, credential: CredentialArgument) -> None:
    """Show a credential; the secret itself is not stored."""
    found = _find(session, _path(session, account), credential)
    session.out.data({"credential": found}, lambda: session.out.details(_details(found)))


@command(group, "mint", _OPTIONS)
def mint_credential(
    session: Session,
    account: AccountArgument,
    ttl: Annotated[
        str | None, typer.Option("--ttl", metavar="SPAN", help="How long it lives: 90s, 15m, 2h, at most 400d.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="Instead, when it expires: a date and time (UTC).")
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What it is for.")] = None,
    destination: Annotated[
        list[str] | None,
        typer.Option("--destination", help="Only to this host, domain or network; may be given several times."),
    ] = None,
    network: Annotated[
        list[str] | None, typer.Option("--network", help="Only from this network; may be given several times.")
    ] = None,
    connections: Annotated[
        int | None, typer.Option("--connections", min=0, help="At the same time on each proxy; 0 for no limit.")
    ] = None,
    quota: Annotated[
        str | None, typer.Option("--quota", metavar="SIZE", help=f"Bytes in total ({SIZE_EXAMPLES}).")
    ] = None,
) -> None:
    """Make a credential. Its secret is shown only once, alone on a line of standard output."""
    if (ttl is None) == (expires is None):
        raise CommandError("Give one of --ttl and --expires", "Such as --ttl 15m", Status.USAGE)
    given = {
        "name": name,
        "ttl": ttl_of(ttl) if ttl else None,
        "expires_at": from_now(expires) if expires else None,
        "allow_destinations": destination or None,
        "allow_clients": network or None,
        "max_connections": connections,
        "quota.bytes": None if quota is None else bytes_of(quota),
    }
    data = session.api.post(_path(session, account), body_of(given, None))
    session.out.data(data, lambda: _show_once(session, data))


def ttl_of(text: str) -> int:
    """The seconds of `--ttl`. Raises `CommandError`."""
    from config.model.new_credentials import TTL_MAX

    found = 0 if text.strip() == "0" else seconds(text, "--ttl")
    if found < 1:
        raise CommandError(f"--ttl {text!r}: must be more than 0, at least 1s", status=Status.USAGE)
    if found > TTL_MAX:
        raise CommandError(f"--ttl {text!r}: must be from 1s to {TTL_MAX // 86400}d", status=Status.USAGE)
    return found


def _show_once(session: Session, data: dict[str, Any]) -> None:
    """The secret; at a terminal with a note, and alone in a pipe, where a script reads it."""
    session.out.line(data["secret"])
    if session.out.terminal:
        made = data["credential"]
        session.out.note(f"{made['id']} expires at {made['expires_at']}. The secret is shown only once.")


add_alias(group, "create", mint_credential)


@command(group, "revoke")
def revoke_credential(
    session: Session, account: AccountArgument, credential: CredentialArgument, yes: YesOption = False
) -> None:
    """Revoke a credential; its connections end within a second."""
    path = _path(session, account)
    found = _find(session, path, credential)
    confirm(f"Revoke the credential {found['name'] or found['id']} ({found['prefix']}…)?", yes)
    data = session.api.delete(f"{path}/{found['id']}")
    session.out.done(data, f"{found['name'] or found['id']} is revoked.")


add_alias(group, "delete", revoke_credential)


def _find(session: Session, path: str, name_or_id: str) -> dict[str, Any]:
    """The credential as the API shows it; an id isn't looked for in the list. Raises `CommandError`."""
    if name_or_id.startswith(CREDENTIAL_ID):
        found: dict[str, Any] = session.api.get(f"{path}/{quoted(name_or_id)}")["credential"]
        return found
    kind = Kind(
        "credential", "name", lambda api: api.cursor_pages(path, "credentials"), "proxyfleet credentials list ACCOUNT"
    )
    return find(session.api, kind, name_or_id)


def _details(credential: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        *((name, credential[name]) for name in ("id", "name", "prefix", "account_id")),
        ("expires", credential["expires_at"]),
        ("destinations", credential["allow_destinations"]),
        ("networks", credential["allow_clients"] or "any"),
        ("quota", _quota(credential)),
        ("connections", credential["max_connections"] or None),
        ("created", credential["created_at"]),
    ]


def _path(session: Session, account: str) -> str:
    return f"/accounts/{quoted(account_id(session.api, account))}/credentials"
