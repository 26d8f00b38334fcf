"""`proxyfleet proxies …`"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, add_group, command, confirm, either
from api.cli.errors import CommandError, Status, combined
from api.cli.lookup import PROXY, find, find_id
from api.cli.quantities import Size, Span
from api.cli.request_body import FileOption, body_of, header_fields, require_changes, set_option
from api.cli.terminal.completion import proxy_names
from api.cli.terminal.field_groups import Fields
from api.cli.terminal.output import Column
from api.cli.terminal.secret_input import StdinOption, password
from config.model.choices import ProxyProtocol, ProxyStatus, TlsNameCheck

group = typer.Typer(help="Proxies: list, create, change, start, stop, test.", no_args_is_help=True)

ProxyArgument = Annotated[str, typer.Argument(metavar="PROXY", help="Its name or id.", autocompletion=proxy_names)]
ProxiesArgument = Annotated[
    list[str], typer.Argument(metavar="PROXY", help="Names or ids.", autocompletion=proxy_names)
]


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    from api.cli.remote import proxy_tests

    proxy_tests.add_commands(group)
    add_group(app, "proxies", group)


def address(row: Any) -> str:
    """The address that a proxy listens at."""
    host = str(row["host"])
    return f"[{host}]:{row['port']}" if ":" in host else f"{host}:{row['port']}"


def transferred(stats: Any) -> Size:
    """Transferred bytes in both directions."""
    return Size(stats["bytes_in"] + stats["bytes_out"])


def state(runtime: dict[str, Any] | None) -> str:
    """The state of a proxy, with the reasons if it is degraded."""
    if runtime is None:
        return "unknown"
    reasons = dict.fromkeys(each["reason"] for each in runtime.get("problems", ()))
    return f"degraded ({', '.join(reasons)})" if runtime["state"] == "degraded" else str(runtime["state"])


COLUMNS = (
    Column("NAME", "name"),
    Column("PROTOCOL", "protocol", spare=1),
    Column("ADDRESS", address, whole=True),
    Column("STATUS", "status"),
    Column("STATE", lambda row: state(row["runtime"])),
    Column("CONNECTIONS", "stats.active_connections", right=True),
    Column("REQUESTS", "stats.total_requests", right=True),
    Column("TRANSFERRED", lambda row: transferred(row["stats"]), right=True, spare=3),
    Column("UPTIME", lambda row: Span(row["stats"]["uptime_seconds"]), right=True, spare=2),
    Column("TAGS", "tags", spare=1),
    Column("ID", "id", spare=4, whole=True),
)

NameArgument = Annotated[
    str | None, typer.Argument(metavar="NAME", help="A name that no other proxy has; or --name.", show_default=False)
]
FIELDS: dict[str, Any] = {
    "name": Annotated[str | None, typer.Option("--name", help="A name that no other proxy has.")],
    "protocol": Annotated[ProxyProtocol | None, typer.Option("--protocol", help="The protocol of clients.")],
    "port": Annotated[
        str | None,
        typer.Option("--port", "-p", metavar="PORT", help="The port to listen at, or a range: 20000-20999."),
    ],
    "host": Annotated[
        str | None, typer.Option("--host", help="The address to listen at; of a new proxy by default 127.0.0.1.")
    ],
    "settings.timeout": Annotated[
        int | None, typer.Option("--idle-timeout", help="Seconds without traffic after which a connection ends.")
    ],
    "settings.max_connections": Annotated[
        int | None, typer.Option("--max-connections", help="Connections at the same time.")
    ],
    "settings.keep_alive": Annotated[
        bool | None,
        typer.Option(
            "--keep-alive/--no-keep-alive", help="Keep connections of clients between requests.", show_default=False
        ),
    ],
    "sleep_after": Annotated[
        int | None,
        typer.Option("--sleep-after", min=0, help="Seconds without a client after which it has no process; 0: never."),
    ],
    "tls_name": Annotated[
        TlsNameCheck | None,
        typer.Option("--tls-name", help="What becomes of the name in the TLS handshake of a tunnel."),
    ],
    "tls_ports": Annotated[
        list[int] | None,
        typer.Option(
            "--tls-port",
            min=1,
            max=65535,
            help="A port whose tunnels are checked; may be repeated. Replaces all; none: --set 'tls_ports=[]'.",
        ),
    ],
    "headers.via": Annotated[
        Literal["pseudonym", "on", "off"] | None,
        typer.Option("--via", help="What the proxy adds to Via: a name of its own, host name and port, or nothing."),
    ],
    "headers.forwarded": Annotated[
        Literal["off", "x-forwarded-for", "rfc7239"] | None,
        typer.Option("--forwarded", help="The field of plain HTTP that tells origins the client's address."),
    ],
    "headers.set": Annotated[
        list[str] | None,
        typer.Option("--set-header", help="NAME: VALUE of a field of plain HTTP; may be repeated. Replaces all."),
    ],
    "headers.remove": Annotated[
        list[str] | None,
        typer.Option("--remove-header", help="The name of a field of plain HTTP; may be repeated. Replaces all."),
    ],
    "policy": Annotated[
        str | None, typer.Option("--policy", help="The policy that judges its requests; none: --set policy=null.")
    ],
    "pool": Annotated[
        str | None,
        typer.Option("--pool", help="The pool of upstreams that it uses in place of its own; none: --set pool=null."),
    ],
    "username_params.enabled": Annotated[
        bool | None,
        typer.Option(
            "--username-params/--no-username-params",
            help="User names may have parameters, such as alice-session-7-country-de.",
            show_default=False,
        ),
    ],
    "dns.servers": Annotated[
        list[str] | None,
        typer.Option(
            "--dns-server",
            help="A name server: address, tls://ADDRESS or https://NAME/PATH; may be given several times.",
        ),
    ],
    "auth.backend.url": Annotated[
        str | None,
        typer.Option("--auth-backend", help="The URL of a service that decides about users who are no accounts."),
    ],
    "tls.cert_file": Annotated[
        str | None,
        typer.Option("--cert-file", help="For https: the certificate, an absolute path on the product's machine."),
    ],
    "tls.key_file": Annotated[
        str | None,
        typer.Option("--key-file", help="For https: its private key, an absolute path on the product's machine."),
    ],
    "tls.client_ca": Annotated[
        str | None,
        typer.Option("--client-ca", help="For https: ask clients for a certificate of the authorities in this file."),
    ],
    "tls.client_auth": Annotated[
        Literal["require", "optional"] | None,
        typer.Option("--client-auth", help="Whether clients must show a certificate; by default they must."),
    ],
    "tls.client_crl": Annotated[
        str | None,
        typer.Option("--client-crl", help="Certificates of clients that are revoked: a file with revocation lists."),
    ],
    "description": Annotated[str | None, typer.Option("--description", help="A text about the proxy.")],
    "tags": Annotated[
        list[str] | None, typer.Option("--tag", help="A tag; may be given several times. Replaces all tags.")
    ],
}
"""Options of `create` and `update` by the field of the API that they set."""
OPTIONS = {"auth.username": "--username", "tls": "--cert-file and --key-file"}
"""Options for further fields."""
UsernameOption = Annotated[
    str | None, typer.Option("--username", help="The user that clients must sign in as; the password is asked for.")
]
SetOption = Annotated[
    list[str] | None,
    set_option("settings.timeout=60", "limits.bandwidth_in=1Mbit/s", 'access.deny_destinations=["*.example"]'),
]


@command(group, "list", {"q": "--search"})
def list_proxies(
    session: Session,
    status: Annotated[ProxyStatus | None, typer.Option("--status", help="Only those of this status.")] = None,
    protocol: Annotated[ProxyProtocol | None, typer.Option("--protocol", help="Only those of this protocol.")] = None,
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="Only those with this tag; several must all be there.")
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", help="Only those with this text in name, host, port or a tag.")
    ] = None,
    sort: Annotated[
        str | None, typer.Option("--sort", help="name, created_at, port, status; - reverses it. By default created_at.")
    ] = None,
) -> None:
    """List proxies."""
    filters = {"status": status, "protocol": protocol, "tag": tag or None, "q": search}
    proxies = list(session.api.pages("/proxies", "proxies", **filters, sort=sort))
    filtered = any(value is not None for value in filters.values())
    nothing = "No proxy matches." if filtered else FIRST_STEP
    data = {"proxies": proxies, "pagination": one_page(len(proxies)), "next_cursor": None}
    session.out.data(data, lambda: session.out.table(COLUMNS, proxies, nothing))


def one_page(total: int) -> dict[str, Any]:
    """The API's `pagination` of a single page."""
    whole = {"page": 1, "per_page": total, "total": total, "pages": 1}
    return {**whole, "has_next": False, "has_prev": False}


FIRST_STEP = "There is no proxy yet. Create one: proxyfleet proxies create first --protocol http --port 3128"


@command(group, "show")
def show_proxy(session: Session, proxy: ProxyArgument) -> None:
    """Show the configuration and state of a proxy."""
    _show(session, session.api.get(path_of(session, proxy)))


@command(group, "create", OPTIONS, FIELDS)
def create_proxy(
    session: Session,
    name_: NameArgument = None,
    *,
    fields: dict[str, Any],
    username: UsernameOption = None,
    password_stdin: StdinOption = False,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Create a proxy and start it. Name, protocol and port are required, as arguments or in a file."""
    fields["name"] = either("--name", name_, fields["name"])
    body = body_of(_parsed(fields), settings, file)
    socks4 = body.get("protocol") == "socks4"
    _credentials(body, username, password_stdin, wants_password=not socks4)
    data = session.api.post("/proxies", body)
    made = data["proxy"]
    session.out.done(data, f"{made['name']} listens at {address(made)} ({made['id']}).")
    _print_secret(session, made)
    _warn(session, data)


@command(group, "update", OPTIONS, FIELDS)
def update_proxy(
    session: Session,
    proxy: ProxyArgument,
    fields: dict[str, Any],
    username: UsernameOption = None,
    password_stdin: StdinOption = False,
    no_sign_in: Annotated[bool, typer.Option("--no-sign-in", help="Accept clients without credentials.")] = False,
    add_tag: Annotated[list[str] | None, typer.Option("--add-tag", help="A tag to add; may be repeated.")] = None,
    remove_tag: Annotated[
        list[str] | None, typer.Option("--remove-tag", help="A tag to remove; may be repeated.")
    ] = None,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Change a proxy: only given fields change. Its address can change only while it is stopped."""
    if no_sign_in:
        fields["auth.enabled"] = False
    body = body_of(_parsed(fields), settings, file)
    _credentials(body, username, password_stdin, wants_password=password_stdin)
    path, headers = path_of(session, proxy), {}
    if add_tag or remove_tag:
        headers = _change_tags(session, path, body, add_tag or [], remove_tag or [])
    require_changes(body, "proxies")
    data = session.api.call("PATCH", path, body=body, headers=headers)
    session.out.done(data, f"{data['proxy']['name']} is changed.")
    _print_secret(session, data["proxy"])
    _warn(session, data)


def _parsed(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        **fields,
        "port": _port(fields["port"]),
        "headers.set": header_fields("--set-header", fields["headers.set"]),
    }


def _port(given: str | None) -> int | str | None:
    """As the API has it: one port is a number."""
    return int(given) if given is not None and given.isascii() and given.isdigit() else given


def _change_tags(
    session: Session, path: str, body: dict[str, Any], more: list[str], fewer: list[str]
) -> dict[str, str | bytes]:
    """Set the tags in `body`. Returns the header that makes the change conditional on the tags that were read."""
    if "tags" in body:
        raise CommandError("--tag replaces all tags", "Give either --tag, or --add-tag and --remove-tag", Status.USAGE)
    tags = session.api.get(path)["proxy"]["tags"]
    body["tags"] = [each for each in dict.fromkeys([*tags, *more]) if each not in fewer]
    return {"If-Match": session.api.etag or "*"}


@command(group, "delete")
def delete_proxy(session: Session, proxies: ProxiesArgument, yes: YesOption = False) -> None:
    """Delete proxies; their connections drain."""
    found = [find(session.api, PROXY, each) for each in proxies]
    names = ", ".join(one["name"] for one in found)
    confirm(f"Delete {names}?", yes)
    _each(session, found, lambda one: session.api.delete(f"/proxies/{one['id']}"), "is deleted")


@command(group, "start")
def start_proxy(session: Session, proxies: ProxiesArgument) -> None:
    """Start proxies."""
    _act(session, proxies, "start")


@command(group, "stop")
def stop_proxy(session: Session, proxies: ProxiesArgument) -> None:
    """Stop proxies; their connections drain."""
    _act(session, proxies, "stop")


@command(group, "restart")
def restart_proxy(session: Session, proxies: ProxiesArgument) -> None:
    """Restart proxies, each with a new process on the same socket: no connection is refused."""
    _act(session, proxies, "restart")


def _credentials(body: dict[str, Any], username: str | None, from_stdin: bool, wants_password: bool) -> None:
    if username is None and not from_stdin:
        return
    auth = body.setdefault("auth", {})
    if username is not None:
        auth |= {"enabled": True, "username": username}
    if wants_password:
        auth["password"] = password("The proxy's password", from_stdin, twice=True)


def path_of(session: Session, proxy: str) -> str:
    """The API's path of the proxy with this name or id. Raises `CommandError`."""
    return f"/proxies/{quoted(find_id(session.api, PROXY, proxy))}"


def _act(session: Session, proxies: list[str], action: str) -> None:
    found = [find(session.api, PROXY, each) for each in proxies]
    _each(session, found, lambda one: session.api.post(f"/proxies/{one['id']}/{action}"), None)


def _each(session: Session, found: Iterable[dict[str, Any]], act: Any, done: str | None) -> None:
    """Call `act` for each; failures are reported at the end and do not stop the others."""
    results: list[Any] = []
    failures: list[tuple[str, CommandError]] = []
    for one in found:
        try:
            data = act(one)
        except CommandError as error:
            failures.append((one["name"], error))
            continue
        results.append(data)
        _warn(session, data)
        session.out.message(f"{one['name']}: {done or data['message']}")
    session.out.data({"results": results}, lambda: None)
    if failures:
        raise combined(failures)


def _show(session: Session, data: dict[str, Any]) -> None:
    proxy = data["proxy"]
    runtime, stats = proxy["runtime"] or {}, proxy["stats"]
    problems, headers = runtime.get("problems") or [], proxy["headers"]
    pairs = [
        ("name", proxy["name"]),
        ("id", proxy["id"]),
        ("address", f"{proxy['protocol']}://{address(proxy)}"),
        ("status", proxy["status"]),
        ("state", runtime.get("state", "unknown")),
        ("error", [f"{each['error']} (since {each['since']})" for each in problems] or runtime.get("error")),
        ("workers", proxy["workers"]),
        ("process", [each["pid"] for each in runtime.get("workers") or ()] or runtime.get("pid")),
        ("restarts", runtime.get("restarts")),
        ("uptime", Span(stats["uptime_seconds"])),
        ("connections", stats["active_connections"]),
        ("requests", f"{stats['total_requests']} ({stats['errors']} failed, {stats['denied']} denied)"),
        ("transferred", transferred(stats)),
        ("last request", stats["last_request"]),
        ("sign-in", _sign_in(proxy)),
        ("accounts", [each["username"] for each in proxy["accounts"]]),
        ("settings", Fields(proxy["settings"])),
        ("sleep", Fields({"sleep_after": proxy["sleep_after"]})),
        ("limits", Fields(proxy["limits"])),
        ("access", Fields(proxy["access"])),
        ("TLS names", _tls_names(proxy)),
        ("headers", Fields({**headers, "set": [f"{name}: {value}" for name, value in headers["set"].items()]})),
        ("user names", Fields(proxy["username_params"])),
        ("exit", _exit(runtime.get("exit"))),
        ("pool", proxy["pool"]),
        ("policy", proxy["policy"]),
        ("dns", Fields({name: value for name, value in proxy["dns"].items() if value not in ("default", {})})),
        ("upstreams", _upstreams(proxy, runtime.get("upstreams") or [])),
        ("description", proxy["description"]),
        ("tags", proxy["tags"]),
        ("created", proxy["created_at"]),
        ("updated", proxy["updated_at"]),
    ]
    session.out.data(data, lambda: session.out.details(pairs))
    _warn(session, data)


def _tls_names(proxy: dict[str, Any]) -> Fields | str:
    """What becomes of the names in handshakes, and at which ports; without ports it becomes nothing of them."""
    if not proxy["tls_ports"]:
        return f"tls_name {proxy['tls_name']}, but tls_ports is empty: no port is checked"
    return Fields({name: proxy[name] for name in ("tls_name", "tls_ports")})


def _exit(found: dict[str, Any] | None) -> str | None:
    """`pool paris, 3 of 4 usable`, `own upstreams, 1 of 2 usable`, `direct to targets`; None while it is not known."""
    if found is None:
        return None
    if found["kind"] == "direct":
        return "direct to targets"
    where = f"pool {found['pool']}" if found["kind"] == "pool" else "own upstreams"
    if found["usable"] is None:
        return where
    unknown = f", {found['unknown']} unknown" if found["unknown"] else ""
    return f"{where}, {found['usable']} of {found['total']} usable{unknown}"


def _sign_in(proxy: dict[str, Any]) -> str:
    if not proxy["auth"]["enabled"]:
        return "not required"
    username = proxy["auth"]["username"]
    return str(username) if username else "as an account" if proxy["accounts"] else NO_ACCOUNT


NO_ACCOUNT = "required, but there is no account: all clients are rejected"


def _upstreams(proxy: dict[str, Any], states: list[dict[str, Any]]) -> list[str]:
    """Names of upstreams, each with its state if that is known."""
    known = {each["name"]: each["state"] for each in states}
    names = [str(each["name"]) for each in proxy["upstreams"]]
    return [f"{name} ({known[name]})" if name in known else name for name in names]


def _print_secret(session: Session, proxy: dict[str, Any]) -> None:
    """Print the signing secret of the back end, if it was just set; programs have it in the data."""
    secret = (proxy["auth"].get("backend") or {}).get("secret")
    if secret is not None and session.out.format != "json":
        session.out.note(f"requests to the back end are signed with {secret}; the secret is shown only now")


def _warn(session: Session, data: dict[str, Any]) -> None:
    """Print the warnings of a response; programs have them in the data."""
    for each in data.get("warnings", ()) if session.out.format != "json" else ():
        session.out.note(f"warning: {each['field']}: {each['warning']}")
