"""`proxyfleet credentials …`: short-lived credentials of the fleet's accounts."""

from __future__ import annotations

from typing import Any

import typer

from api.cli.client import quoted
from api.cli.commands import YES, Given, Session, add_group, command, confirm
from api.cli.errors import CommandError, Status
from api.cli.lookup import Kind, account_id, find
from api.cli.options import argument, number, text, texts
from api.cli.quantities import SIZE_EXAMPLES, Size, bytes_of, moment_option, seconds
from api.cli.request_body import body_of
from api.cli.terminal.output import Column, inside, pairs_of, titled

group = typer.Typer(help="Credentials of accounts, such as one for each job.", no_args_is_help=True)

CREDENTIAL_ID = "crd_"


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "credentials", group)


def ttl_of(given: str) -> int:
    """The seconds of `--ttl`. Raises `CommandError`."""
    from config.model.account_credentials import TTL_MAX

    found = 0 if given.strip() == "0" else seconds(given, "--ttl")
    if found < 1:
        raise CommandError(f"--ttl {given!r}: must be more than 0, at least 1s", status=Status.USAGE)
    if found > TTL_MAX:
        raise CommandError(f"--ttl {given!r}: must be from 1s to {TTL_MAX // 86400}d", status=Status.USAGE)
    return found


def _quota(credential: Any) -> Size | None:
    count = inside(credential, "quota.bytes")
    return Size(count, is_setting=True) if count else None


_ACCOUNT = {"account": argument("ACCOUNT", "The account's user name or id.")}
_ONE = {**_ACCOUNT, "credential": argument("CREDENTIAL", "Its id or name.")}
_MINT = {
    **_ACCOUNT,
    "ttl": text("--ttl", "How long it lives: 90s, 15m, 2h, at most 400d.", metavar="SPAN", parse=ttl_of),
    "expires_at": moment_option("--expires", "Instead, when it expires: a date and time (UTC).", 1),
    "name": text("--name", "What it is for."),
    "allow_destinations": texts("--destination", "Only to this host, domain or network; may be given several times."),
    "allow_clients": texts("--network", "Only from this network; may be given several times."),
    "max_connections": number("--connections", "At the same time on each proxy; 0 for no limit.", min=0),
    "quota.bytes": text("--quota", f"Bytes in total ({SIZE_EXAMPLES}).", metavar="SIZE", parse=bytes_of),
}
COLUMNS = (
    Column("ID", "id", whole=True),
    *titled("name", "prefix", "expires_at"),
    Column("DESTINATIONS", "allow_destinations", spare=True),
    Column("NETWORKS", "allow_clients", spare=True),
    Column("QUOTA", _quota, right=True, spare=True),
    Column("CREATED", "created_at", spare=True),
)
DETAILS = (
    *("id", "name", "prefix"),
    ("account_id", "account_id"),
    "expires_at",
    ("destinations", "allow_destinations"),
    ("networks", lambda credential: credential["allow_clients"] or "any"),
    ("quota", _quota),
    ("connections", lambda credential: credential["max_connections"] or None),
    "created_at",
)


def _kind(session: Session, account: str) -> Kind:
    """The credentials of an account."""
    path = f"/accounts/{quoted(account_id(session.api, account))}/credentials"
    return Kind("credential", "credentials", path=path, list_command="proxyfleet credentials list ACCOUNT")


@command(group, "list", _ACCOUNT)
def list_credentials(session: Session, account: str) -> None:
    """List the credentials of an account."""
    data = {**_kind(session, account).listed(session.api), "next_cursor": None}
    session.out.data(data, lambda: session.out.table(COLUMNS, data["credentials"], "There is no credential."))


@command(group, "show", _ONE)
def show_credential(session: Session, account: str, credential: str) -> None:
    """Show a credential; the secret itself is not stored."""
    found = _find(session, _kind(session, account), credential)
    session.out.data({"credential": found}, lambda: session.out.details(pairs_of(found, DETAILS)))


@command(group, "mint", _MINT, {"ttl": "--ttl"}, aliases=("create",))
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


@command(group, "revoke", {**_ONE, "yes": YES}, aliases=("delete",))
def revoke_credential(session: Session, account: str, credential: str, yes: bool) -> None:
    """Revoke a credential; its connections end within a second."""
    kind = _kind(session, account)
    found = _find(session, kind, credential)
    confirm(f"Revoke the credential {found['name'] or found['id']} ({found['prefix']}…)?", yes)
    data = session.api.delete(f"{kind.path}/{found['id']}")
    session.out.done(data, f"{found['name'] or found['id']} is revoked.")


def _find(session: Session, kind: Kind, name_or_id: str) -> dict[str, Any]:
    """The credential as the API shows it; an id isn't looked for in the list. Raises `CommandError`."""
    if name_or_id.startswith(CREDENTIAL_ID):
        found: dict[str, Any] = session.api.get(f"{kind.path}/{quoted(name_or_id)}")["credential"]
        return found
    return find(session.api, kind, name_or_id)
