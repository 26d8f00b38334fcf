"""`proxyfleet users …`"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from api.cli.commands import Session, YesOption, add_group, command, confirm
from api.cli.lookup import USER, find, find_id
from api.cli.request_body import body_of, require_changes
from api.cli.terminal.completion import user_names
from api.cli.terminal.output import Column
from api.cli.terminal.secret_input import StdinOption, password

group = typer.Typer(help="Users of the management API.", no_args_is_help=True)

UserArgument = Annotated[
    str, typer.Argument(metavar="USER", help="The user name or the id.", autocompletion=user_names)
]
Role = Literal["administrator", "operator", "user", "auditor"]
FIELDS: dict[str, Any] = {
    "role": Annotated[Role | None, typer.Option("--role", help="A default set of permissions.")],
    "email": Annotated[str | None, typer.Option("--email", help="An e-mail address.")],
    "permissions": Annotated[
        list[str] | None,
        typer.Option("--permission", help="Instead of those of the role; may be given several times."),
    ],
}
"""Options of `create` and `update` by the field of the API that they set."""
STATUS = Annotated[Literal["active", "disabled"] | None, typer.Option("--status", help="Whether the user may sign in.")]

COLUMNS = (
    Column("USERNAME", "username"),
    Column("ROLE", "role"),
    Column("STATUS", "status"),
    Column("EMAIL", "email"),
    Column("PERMISSIONS", "permissions", spare=True),
    Column("LAST LOGIN", "last_login", spare=True),
    Column("ID", "id", spare=True),
)


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "users", group)


@command(group, "list")
def list_users(session: Session) -> None:
    """List users."""
    data = session.api.get("/users")
    session.out.data(data, lambda: session.out.table(COLUMNS, data["users"]))


@command(group, "show")
def show_user(session: Session, user: UserArgument) -> None:
    """Show a user."""
    data = session.api.get(f"/users/{find_id(session.api, USER, user)}")
    found = data["user"]
    names = ("username", "id", "email", "role", "status", "permissions", "last_login", "created_at", "updated_at")
    pairs = [(name.removesuffix("_at").replace("_", " "), found[name]) for name in names]
    by = ("signs in by", found["oauth_provider"] or "password")
    session.out.data(data, lambda: session.out.details([*pairs, by]))


@command(group, "create", fields=FIELDS)
def create_user(
    session: Session,
    username: Annotated[str, typer.Argument(help="The user name.")],
    fields: dict[str, Any],
    password_stdin: StdinOption = False,
) -> None:
    """Create a user; the password is asked for."""
    secret = password(f"Password of {username}", password_stdin, twice=True)
    data = session.api.post("/users", body_of({"username": username, "password": secret, **fields}, None))
    made = data["user"]
    session.out.done(data, f"{made['username']} is created as {made['role']} ({made['id']}).")


@command(group, "update", fields={**FIELDS, "status": STATUS})
def update_user(
    session: Session,
    user: UserArgument,
    fields: dict[str, Any],
    new_password: Annotated[bool, typer.Option("--password", help="Ask for a new password.")] = False,
    password_stdin: StdinOption = False,
) -> None:
    """Change a user: only given fields change. A new password or `disabled` ends the user's sign-ins.

    For a new password or e-mail address of your own the current password is asked for first.
    """
    me = session.api.get("/auth/test")
    own = user in (me.get("username"), me.get("user_id"))  # users find themselves without `users.read`
    found = session.api.get(f"/users/{me['user_id']}")["user"] if own else find(session.api, USER, user)
    body = body_of(fields, None)
    if me.get("user_id") == found["id"] and (new_password or password_stdin or "email" in body):
        body["current_password"] = password("Current password", password_stdin)
    if new_password or password_stdin:
        body["password"] = password(f"New password of {found['username']}", password_stdin, twice=True)
    require_changes(body, "users")
    data = session.api.patch(f"/users/{found['id']}", body)
    session.out.done(data, f"{found['username']} is changed.")


@command(group, "delete")
def delete_user(session: Session, user: UserArgument, yes: YesOption = False) -> None:
    """Delete a user with all sign-ins and API keys."""
    found = find(session.api, USER, user)
    confirm(f"Delete {found['username']} with all API keys?", yes)
    data = session.api.delete(f"/users/{found['id']}")
    session.out.done(data, f"{found['username']} is deleted.")
