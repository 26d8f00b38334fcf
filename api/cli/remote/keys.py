"""`proxyfleet keys …`: API keys. A key can't create or revoke keys, so these commands need a login."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.commands import Session, YesOption, add_group, command, confirm
from api.cli.lookup import KEY, PROXY, USER, account_id, find, find_id, names
from api.cli.request_body import body_of
from api.cli.terminal.completion import key_names, proxy_names
from api.cli.terminal.output import Column
from api.cli.time_options import from_now, seconds

group = typer.Typer(help="API keys, for programs.", no_args_is_help=True)

KeyArgument = Annotated[str, typer.Argument(metavar="KEY", help="Its name or id.", autocompletion=key_names)]

COLUMNS = (
    Column("NAME", "name"),
    Column("PREFIX", "prefix"),
    Column("PERMISSIONS", "permissions", spare=True),
    Column("EXPIRES", "expires_at"),
    Column("LAST USED", "last_used", spare=True),
    Column("PROXIES", "proxies", spare=True),
    Column("ACCOUNTS", "scope.accounts", spare=True),
    Column("NETWORKS", "scope.ip_whitelist", spare=True),
    Column("OWNER", "owner", spare=True),
    Column("ID", "id", whole=True),
)


_OPTIONS = {
    "permissions": "--permission",
    "expires_at": "--expires",
    "scope.accounts": "--account",
    "scope.pools": "--pool",
    "scope.policies": "--policy",
    "scope.lists": "--list",
    "scope.ip_whitelist": "--network",
}
"""Options by the API's field, where the names differ."""


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "keys", group)


@command(group, "list")
def list_keys(session: Session) -> None:
    """List API keys: your own, or all of them for administrators."""
    data = session.api.get("/api-keys")
    session.out.data(
        data, lambda: session.out.table(COLUMNS, _named(session, data["api_keys"]), "There is no API key.")
    )


def _named(session: Session, keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The keys with the names of owners and proxies; ids of those that are deleted or that the caller may not list."""
    users = names(session.api, USER) if keys else {}
    proxies = names(session.api, PROXY) if any(_scope(each) for each in keys) else {}
    return [
        {
            **each,
            "owner": users.get(each["user_id"], each["user_id"]),
            "proxies": [proxies.get(one, one) for one in _scope(each)],
        }
        for each in keys
    ]


def _scope(key: dict[str, Any]) -> list[str]:
    return (key["scope"] or {}).get("proxies") or []


@command(group, "show")
def show_key(session: Session, key: KeyArgument) -> None:
    """Show an API key; the key itself is not stored."""
    found = find(session.api, KEY, key)
    session.out.data({"api_key": found}, lambda: session.out.details(_details(*_named(session, [found]))))


def _details(key: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        *((name, key[name]) for name in ("name", "id", "prefix", "permissions")),
        ("proxies", key["proxies"] or "all"),
        ("accounts", (key["scope"] or {}).get("accounts")),
        *((name, (key["scope"] or {}).get(name)) for name in ("pools", "policies", "lists")),
        ("networks", (key["scope"] or {}).get("ip_whitelist") or "any"),
        ("expires", key["expires_at"]),
        ("last used", key["last_used"]),
        ("owner", key["owner"]),
        ("created", key["created_at"]),
    ]


@command(group, "create", _OPTIONS)
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What the key is for.")],
    permission: Annotated[
        list[str] | None, typer.Option("--permission", help="May be given several times; by default all of yours.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="When it expires: 30d, 12h from now, or a date and time (UTC).")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy", help="Valid for this proxy only; may be given several times.", autocompletion=proxy_names
        ),
    ] = None,
    account: Annotated[
        list[str] | None,
        typer.Option(
            "--account",
            help="Only to make, list and revoke credentials of this account, as run does; may be given several times.",
        ),
    ] = None,
    pool: Annotated[
        list[str] | None, typer.Option("--pool", help="With --proxy: may read this pool and set it; several times.")
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option("--policy", help="With --proxy: may read this policy and set it; several times.")
    ] = None,
    list_: Annotated[
        list[str] | None,
        typer.Option("--list", help="With --proxy or --account: may name this list; several times."),
    ] = None,
    network: Annotated[
        list[str] | None, typer.Option("--network", help="Valid from this network only; may be given several times.")
    ] = None,
) -> None:
    """Create an API key. It is shown only once."""
    given = {
        "name": name,
        "permissions": permission or None,
        "expires_at": from_now(expires) if expires else None,
        "scope.proxies": [find_id(session.api, PROXY, each) for each in proxy] if proxy else None,
        "scope.accounts": [account_id(session.api, each) for each in account] if account else None,
        "scope.pools": pool or None,
        "scope.policies": policy or None,
        "scope.lists": list_ or None,
        "scope.ip_whitelist": network or None,
    }
    data = session.api.post("/api-keys", body_of(given, None))
    session.out.data(data, lambda: _show_once(session, data))


@command(group, "rotate", {"grace": "--grace"})
def rotate_key(
    session: Session,
    key: KeyArgument,
    grace: Annotated[
        str | None,
        typer.Option(
            "--grace",
            metavar="SPAN",
            help="How long the old key stays valid: 1h, 7d, at most 30d; by default 0.",
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Replace an API key by one with the same rights and lifetime. The new key is shown only once.

    Without --grace the old key is revoked at once, after a question. Only for your own keys.
    """
    found = find(session.api, KEY, key)
    body = {"grace": seconds(grace, "--grace")} if grace else {}
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


@command(group, "revoke")
def revoke_key(
    session: Session,
    key: KeyArgument,
    yes: YesOption = False,
) -> None:
    """Revoke an API key."""
    found = find(session.api, KEY, key)
    confirm(f"Revoke the key {found['name']} ({found['prefix']}…)?", yes)
    data = session.api.delete(f"/api-keys/{found['id']}")
    session.out.done(data, f"{found['name']} is revoked.")
