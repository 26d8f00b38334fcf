"""`proxyfleet sessions …`: sign-ins of users. A key can't list or end them, so these commands need a login."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.commands import Session, add_group, command
from api.cli.errors import CommandError, Status
from api.cli.lookup import USER, find_id
from api.cli.terminal.completion import user_names
from api.cli.terminal.output import Column

group = typer.Typer(help="Sessions: the sign-ins of users.", no_args_is_help=True)

UserOption = Annotated[
    str | None,
    typer.Option("--user", metavar="USER", help="Those of this user, for administrators.", autocompletion=user_names),
]

COLUMNS = (
    Column("ID", "id", whole=True),
    Column("KIND", "kind"),
    Column("LAST USED", "last_used"),
    Column("FROM", "address"),
    Column("CLIENT", "user_agent", spare=True),
    Column("SINCE", "created_at", spare=True),
    Column("CURRENT", "current", spare=True),
)


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "sessions", group)


@command(group, "list")
def list_sessions(session: Session, user: UserOption = None) -> None:
    """List your own sessions, or those of a user."""
    data = session.api.get(_path(session, user))
    session.out.data(data, lambda: session.out.table(COLUMNS, data["sessions"], "There is no session."))


@command(group, "end")
def end_session(
    session: Session,
    identifier: Annotated[str, typer.Argument(metavar="ID", help="The id of the session, or how it begins.")],
    user: UserOption = None,
) -> None:
    """End a session: its tokens are invalid from now on."""
    path = _path(session, user)
    known: list[dict[str, Any]] = session.api.get(path)["sessions"]
    found = [each["id"] for each in known if each["id"].startswith(identifier)]
    if len(found) != 1:
        problem = "There is no session" if not found else "There are several sessions"
        raise CommandError(f"{problem} {identifier!r}", "All of them: proxyfleet sessions list", Status.NOT_FOUND)
    data = session.api.delete(f"{path}/{found[0]}")
    session.out.done(data, f"The session {found[0]} has ended.")


def _path(session: Session, user: str | None) -> str:
    return "/auth/sessions" if user is None else f"/users/{find_id(session.api, USER, user)}/sessions"
