"""Who uses the management API: `proxyfleet login`, `logout`, `whoami`, `users …`, their `sessions …` and `keys …`.

A key can't list or end sessions, nor create or revoke keys, so these commands need a login.
"""

from __future__ import annotations

from typing import Any, Literal

from api.cli.client import is_here
from api.cli.commands import RUN, TOP, YES, Commands, Given, Session, command, confirm, key_argument, new_group
from api.cli.documents import body_of, require_changes
from api.cli.errors import CommandError, Status
from api.cli.options import ACCOUNT, KEY, PROXY, USER, argument, choice, find, flag, names, option, text, texts
from api.cli.quantities import moment_option, span_option
from api.cli.terminal import PASSWORD_STDIN, Column, Detail, inside, pairs_of, password, titled

Role = Literal["administrator", "operator", "user", "auditor"]


# --- signing in ---


_USERNAME = option(str, "--username -u", "The user to sign in as.", default="admin")


@command(TOP, "login", {"username": _USERNAME, "password_stdin": PASSWORD_STDIN}, rich_help_panel=RUN)
def login(session: Session, username: str, password_stdin: bool) -> None:
    """Sign in; a private file keeps the tokens, and commands renew them."""
    url = session.api.url
    if url.startswith("http://") and not is_here(url):
        session.out.note(f"note: {url} is not encrypted; the password can be read on the way")
    user = session.api.sign_in(username, password(f"Password of {username} at {url}", password_stdin))
    session.out.done({"url": url, "user": user}, f"Signed in at {url} as {user['username']} ({user['role']}).")


@command(TOP, "logout", rich_help_panel=RUN)
def logout(session: Session) -> None:
    """Sign out: the tokens are invalid from now on."""
    ended = session.api.sign_out()
    done = f"Signed out at {session.api.url}." if ended else f"No one was signed in at {session.api.url}."
    session.out.done({"url": session.api.url, "signed_out": ended}, done)


@command(TOP, "whoami", rich_help_panel=RUN)
def whoami(session: Session) -> None:
    """Show the signed-in user with role and permissions."""
    try:
        data = session.api.get("/auth/test")
    except CommandError as error:
        signed_out = session.api.credential == "login" and session.api.signed_in is None
        if error.status is Status.NOT_AUTHORISED and signed_out:
            error.hint = f"No one is signed in at {session.api.url}: proxyfleet login"
        raise
    fields = ("username", "role", "user_id", "key_id", "auth_method", "permissions")
    pairs = [("api", session.api.url), *((name, data[name]) for name in fields if name in data)]
    session.out.data(data, lambda: session.out.details(pairs))


# --- users ---

users = Commands(
    USER,
    "Users of the management API.",
    (*titled("username", "role", "status", "email"), *titled("permissions", "last_login", "id", spare=True)),
    (
        *("username", "id", "email", "role", "status", "permissions", "last_login", "created_at", "updated_at"),
        ("signs in by", lambda user: user["oauth_provider"] or "password"),
    ),
    only=("list", "show", "delete"),
    texts={"delete": "Delete a user with all sign-ins and API keys."},
    key="The user name or the id.",
    question="Delete {username} with all API keys?",
    deleted="{username} is deleted.",
).group()
_FIELDS = {
    "role": choice("--role", "A default set of permissions.", Role),
    "email": text("--email", "An e-mail address."),
    "permissions": texts("--permission", "Instead of those of the role; may be given several times."),
}
_CREATE = {"username": argument("USERNAME", "The user name."), **_FIELDS, "password_stdin": PASSWORD_STDIN}


@command(users, "create", _CREATE)
def create_user(session: Session, username: str, fields: Given, password_stdin: bool) -> None:
    """Create a user; the password is asked for."""
    secret = password(f"Password of {username}", password_stdin, twice=True)
    data = session.api.post("/users", body_of({"username": username, "password": secret, **fields}))
    made = data["user"]
    session.out.done(data, f"{made['username']} is created as {made['role']} ({made['id']}).")


_UPDATE = {
    "user": key_argument(USER, "The user name or the id."),
    **_FIELDS,
    "status": choice("--status", "Whether the user may sign in.", ("active", "disabled")),
    "new_password": flag("--password", "Ask for a new password."),
    "password_stdin": PASSWORD_STDIN,
}


@command(users, "update", _UPDATE)
def update_user(session: Session, user: str, fields: Given, new_password: bool, password_stdin: bool) -> None:
    """Change a user: only given fields change. A new password or `disabled` ends the user's sign-ins.

    For a new password or e-mail address of your own the current password is asked for first.
    """
    me = session.api.get("/auth/test")
    own = user in (me.get("username"), me.get("user_id"))  # users find themselves without `users.read`
    found = session.api.get(f"/users/{me['user_id']}")["user"] if own else find(session.api, USER, user)
    body = body_of(fields)
    if me.get("user_id") == found["id"] and (new_password or password_stdin or "email" in body):
        body["current_password"] = password("Current password", password_stdin)
    if new_password or password_stdin:
        body["password"] = password(f"New password of {found['username']}", password_stdin, twice=True)
    require_changes(body, "users")
    data = session.api.patch(f"/users/{found['id']}", body)
    session.out.done(data, f"{found['username']} is changed.")


# --- sessions ---

sessions = new_group("sessions", "Sessions: the sign-ins of users.")
_OF_USER = {"user": text("--user", "Those of this user, for administrators.", of=USER)}
SESSION_COLUMNS = (
    Column("ID", "id", whole=True),
    *titled("kind", "last_used", ("FROM", "address")),
    *titled(("CLIENT", "user_agent"), ("SINCE", "created_at"), "current", spare=True),
)


@command(sessions, "list", _OF_USER)
def list_sessions(session: Session, user: str | None) -> None:
    """List your own sessions, or those of a user."""
    data = session.api.get(_sessions(user))
    session.out.data(data, lambda: session.out.table(SESSION_COLUMNS, data["sessions"], "There is no session."))


@command(sessions, "end", {"identifier": argument("ID", "The id of the session, or how it begins."), **_OF_USER})
def end_session(session: Session, identifier: str, user: str | None) -> None:
    """End a session: its tokens are invalid from now on."""
    known = session.api.get(_sessions(user))["sessions"]
    found = [each["id"] for each in known if each["id"].startswith(identifier)]
    if len(found) != 1:
        problem = "There is no session" if not found else "There are several sessions"
        raise CommandError(f"{problem} {identifier!r}", "All of them: proxyfleet sessions list", Status.NOT_FOUND)
    data = session.api.delete(f"{_sessions(user)}/{found[0]}")
    session.out.done(data, f"The session {found[0]} has ended.")


def _sessions(user: str | None) -> str:
    return "/auth/sessions" if user is None else f"/users/{user}/sessions"


# --- keys ---


def _named(session: Session, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The keys with the names of owners and proxies; ids of those that are deleted or that the caller may not list."""
    owners = names(session.api, USER) if found else {}
    proxies = names(session.api, PROXY) if any(_scope(each) for each in found) else {}
    return [
        {
            **each,
            "owner": owners.get(each["user_id"], each["user_id"]),
            "proxies": [proxies.get(one, one) for one in _scope(each)],
        }
        for each in found
    ]


def _scope(key: dict[str, Any]) -> list[str]:
    return (key["scope"] or {}).get("proxies") or []


keys = Commands(
    KEY,
    "API keys, for programs.",
    (
        *titled("name", "prefix"),
        Column("PERMISSIONS", "permissions", spare=True),
        Column("EXPIRES", "expires_at"),
        *titled("last_used", "proxies", "scope.accounts", ("NETWORKS", "scope.ip_whitelist"), "owner", spare=True),
        Column("ID", "id", whole=True),
    ),
    only=("list", "delete"),
    texts={"list": "List API keys: your own, or all of them for administrators.", "delete": "Revoke an API key."},
    question="Revoke the key {name} ({prefix}…)?",
    delete="revoke",
    deleted="{name} is revoked.",
    rows=_named,
).group()
_KEY = {"key": key_argument(KEY)}
_KEY_DETAILS: tuple[Detail, ...] = (
    *("name", "id", "prefix", "permissions"),
    ("proxies", lambda key: key["proxies"] or "all"),
    ("accounts", "scope.accounts"),
    *((name, f"scope.{name}") for name in ("pools", "policies", "lists")),
    ("networks", lambda key: inside(key, "scope.ip_whitelist") or "any"),
    *("expires_at", "last_used", "owner", "created_at"),
)


@command(keys, "show", _KEY)
def show_key(session: Session, key: str) -> None:
    """Show an API key; the key itself is not stored."""
    found = find(session.api, KEY, key)
    (row,) = _named(session, [found])
    session.out.data({"api_key": found}, lambda: session.out.details(pairs_of(row, _KEY_DETAILS)))


_ACCOUNT = "Only to make, list and revoke credentials of this account, as run does; may be given several times."
_NEW_KEY = {
    "name": argument("NAME", "What the key is for."),
    "permissions": texts("--permission", "May be given several times; by default all of yours."),
    "expires_at": moment_option("--expires", "When it expires: 30d, 12h from now, or a date and time (UTC).", 1),
    "scope.proxies": texts("--proxy", "Valid for this proxy only; may be given several times.", of=PROXY),
    "scope.accounts": texts("--account", _ACCOUNT, of=ACCOUNT),
    "scope.pools": texts("--pool", "With --proxy: may read this pool and set it; several times."),
    "scope.policies": texts("--policy", "With --proxy: may read this policy and set it; several times."),
    "scope.lists": texts("--list", "With --proxy or --account: may name this list; several times."),
    "scope.ip_whitelist": texts("--network", "Valid from this network only; may be given several times."),
}


@command(keys, "create", _NEW_KEY)
def create_key(session: Session, fields: Given) -> None:
    """Create an API key. It is shown only once."""
    data = session.api.post("/api-keys", body_of(fields))
    session.out.data(data, lambda: _show_once(session, data))


_GRACE = span_option("--grace", "How long the old key stays valid, at most 30d; by default 0.")


@command(keys, "rotate", {**_KEY, "grace": _GRACE, "yes": YES}, {"grace": "--grace"})
def rotate_key(session: Session, key: str, grace: float | None, yes: bool) -> None:
    """Replace an API key by one with the same rights and lifetime. The new key is shown only once.

    Without --grace the old key is revoked at once, after a question. Only for your own keys.
    """
    found = find(session.api, KEY, key)
    body = {"grace": grace} if grace else {}
    if not body:
        confirm(f"Revoke the present key {found['name']} ({found['prefix']}…) at once?", yes)
    data = session.api.post(f"/api-keys/{found['id']}/rotate", body)
    session.out.data(data, lambda: _show_once(session, data, data["previous"]))


def _show_once(session: Session, data: dict[str, Any], previous: dict[str, Any] | None = None) -> None:
    session.out.line(data["key"])
    session.out.note("The key is shown only once; store it like a password.")
    if previous is not None:
        ends = "is revoked" if previous["revoked"] else f"is valid until {previous['expires_at']}"
        session.out.note(f"The old key ({previous['id']}) {ends}.")
