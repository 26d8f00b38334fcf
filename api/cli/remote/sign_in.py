"""`proxyfleet login`, `logout`, `whoami`."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.client import is_here
from api.cli.commands import RUN, Session, command
from api.cli.errors import CommandError, Status
from api.cli.terminal.secret_input import StdinOption, password


def add_commands(app: typer.Typer) -> None:
    """Put them into `app`."""
    command(app, "login", rich_help_panel=RUN)(login)
    command(app, "logout", rich_help_panel=RUN)(logout)
    command(app, "whoami", rich_help_panel=RUN)(whoami)


def login(
    session: Session,
    username: Annotated[str, typer.Option("--username", "-u", help="Whom to sign in as.")] = "admin",
    password_stdin: StdinOption = False,
) -> None:
    """Sign in; the tokens are kept in a private file and renewed as long as they can be."""
    if session.api.url.startswith("http://") and not is_here(session.api.url):
        session.out.note(f"note: {session.api.url} is not encrypted; the password can be read on the way")
    secret = password(f"Password of {username} at {session.api.url}", password_stdin)
    user = session.api.sign_in(username, secret)
    data = {"url": session.api.url, "user": user}
    where = f"Signed in at {session.api.url} as {user['username']} ({user['role']})."
    session.out.data(data, lambda: session.out.message(where))


def logout(session: Session) -> None:
    """Sign out: the tokens are dead from now on."""
    ended = session.api.sign_out()
    text = f"Signed out at {session.api.url}." if ended else f"Nobody was signed in at {session.api.url}."
    session.out.data({"url": session.api.url, "signed_out": ended}, lambda: session.out.message(text))


def whoami(session: Session) -> None:
    """Show who is signed in, and what they may do."""
    try:
        data = session.api.get("/auth/test")
    except CommandError as trouble:
        nobody = session.api.credential == "login" and session.api.signed_in is None
        if trouble.status is Status.NOT_AUTHORISED and nobody:
            trouble.hint = f"Nobody is signed in at {session.api.url}: proxyfleet login"
        raise
    names = ("username", "role", "user_id", "key_id", "auth_method", "permissions")
    pairs = [("api", session.api.url), *((name, data[name]) for name in names if name in data)]
    session.out.data(data, lambda: session.out.details(pairs))
