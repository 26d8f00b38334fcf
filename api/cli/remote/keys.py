"""`proxyfleet keys …`: API keys. A key can't make or revoke keys, so these want a login."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from api.cli.commands import Session, YesOption, command
from api.cli.lookup import KEY, PROXY, USER, find, find_id, names
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
    Column("NETWORKS", "scope.ip_whitelist", spare=True),
    Column("OWNER", "owner", spare=True),
    Column("ID", "id", whole=True),
)


_OPTIONS = {"permissions": "--permission", "expires_at": "--expires", "scope.ip_whitelist": "--network"}
"""What the API calls otherwise."""


@command(group, "list")
def list_keys(session: Session) -> None:
    """List API keys: your own, or all of them for administrators."""
    data = session.api.get("/api-keys")
    session.out.data(
        data, lambda: session.out.table(COLUMNS, _named(session, data["api_keys"]), "There is no API key.")
    )


def _named(session: Session, keys: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The keys with what their owners and proxies are called; those that are gone or not to be listed by their ids."""
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
    """Show an API key; what it is itself, nobody can show."""
    found = find(session.api, KEY, key)
    session.out.data({"api_key": found}, lambda: session.out.details(_details(*_named(session, [found]))))


def _details(key: dict[str, Any]) -> list[tuple[str, Any]]:
    return [
        *((name, key[name]) for name in ("name", "id", "prefix", "permissions")),
        ("proxies", key["proxies"] or "all"),
        ("networks", (key["scope"] or {}).get("ip_whitelist") or "any"),
        ("expires", key["expires_at"]),
        ("last used", key["last_used"]),
        ("owner", key["owner"]),
        ("created", key["created_at"]),
    ]


@command(group, "create", _OPTIONS)
def create_key(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="NAME", help="What it is for.")],
    permission: Annotated[
        list[str] | None, typer.Option("--permission", help="May be given several times; all of yours unless said.")
    ] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", help="When it ends: 30d, 12h from now, or a date and time (UTC).")
    ] = None,
    proxy: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy", help="Good for this proxy alone; may be given several times.", autocompletion=proxy_names
        ),
    ] = None,
    network: Annotated[
        list[str] | None, typer.Option("--network", help="Good from this network alone; may be given several times.")
    ] = None,
) -> None:
    """Make an API key. It is shown this once."""
    given = {
        "name": name,
        "permissions": permission or None,
        "expires_at": from_now(expires) if expires else None,
        "scope.proxies": [find_id(session.api, PROXY, each) for each in proxy] if proxy else None,
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
            "--grace", metavar="SPAN", help="How long the old one stays valid: 1h, 7d, up to 30d; at once unless said."
        ),
    ] = None,
    yes: YesOption = False,
) -> None:
    """Replace an API key by one with the same rights and lifetime. The new one is shown this once.

    Without --grace the old one is revoked at once, which asks first. Only your own keys.
    """
    found = find(session.api, KEY, key)
    body = {"grace": seconds(grace, "--grace")} if grace else {}
    if not body:
        session.confirm(f"Revoke the present key {found['name']} ({found['prefix']}…) at once?", yes)
    data = session.api.post(f"/api-keys/{found['id']}/rotate", body)
    session.out.data(data, lambda: _show_once(session, data, data["previous"]))


def _show_once(session: Session, data: dict[str, Any], previous: dict[str, Any] | None = None) -> None:
    session.out.line(data["key"])
    session.out.note("The key is shown this once; keep it where secrets are kept.")
    if previous is not None:
        ends = "is revoked" if previous["revoked"] else f"is valid until {previous['expires_at']}"
        session.out.note(f"The old one ({previous['id']}) {ends}.")


@command(group, "revoke")
def revoke_key(
    session: Session,
    key: KeyArgument,
    yes: YesOption = False,
) -> None:
    """Revoke an API key."""
    found = find(session.api, KEY, key)
    session.confirm(f"Revoke the key {found['name']} ({found['prefix']}…)?", yes)
    data = session.api.delete(f"/api-keys/{found['id']}")
    session.out.data(data, lambda: session.out.message(f"{found['name']} is revoked."))
