"""`proxyfleet login`, `logout`, `whoami`."""

from __future__ import annotations

from typing import Annotated

import typer

from api.cli.client import is_here
from api.cli.commands import RUN, Session, command
from api.cli.errors import CommandError, Status
from api.cli.terminal.secret_input import StdinOption, password


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    command(app, "login", rich_help_panel=RUN)(login)
    command(app, "logout", rich_help_panel=RUN)(logout)
    command(app, "whoami", rich_help_panel=RUN)(whoami)


def login(
    session: Session,
    username: Annotated[str, typer.Option("--username", "-u", help="The user to sign in as.")] = "admin",
    password_stdin: StdinOption = False,
) -> None:
    """Sign in; a private file keeps the tokens, and commands renew them."""
    if session.api.url.startswith("http://") and not is_here(session.api.url):
        session.out.note(f"note: {session.api.url} is not encrypted; the password can be read on the way")
    secret = password(f"Password of {username} at {session.api.url}", password_stdin)
    user = session.api.sign_in(username, secret)
    data = {"url": session.api.url, "user": user}
    where = f"Signed in at {session.api.url} as {user['username']} ({user['role']})."
    session.out.done(data, where)


def logout(session: Session) -> None:
    """Sign out: the tokens are invalid from now on."""
    ended = session.api.sign_out()
    text = f"Signed out at {session.api.url}." if ended else f"No one was signed in at {session.api.url}."
    session.out.done({"url": session.api.url, "signed_out": ended}, text)


def whoami(session: Session) -> None:
    """Show the signed-in user with role and permissions."""
    try:
        data = session.api.get("/auth/test")
    except CommandError as error:
        signed_out = session.api.credential == "login" and session.api.signed_in is None
        if error.status is Status.NOT_AUTHORISED and signed_out:
            error.hint = f"No one is signed in at {session.api.url}: proxyfleet login"
        raise
    names = ("username", "role", "user_id", "key_id", "auth_method", "permissions")
    pairs = [("api", session.api.url), *((name, data[name]) for name in names if name in data)]
    session.out.data(data, lambda: session.out.details(pairs))
