"""`proxyfleet proxies …`"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from api.cli.client import quoted
from api.cli.commands import NOTHING, YES, Given, Session, command, confirm, either, key_argument, new_group, warn
from api.cli.documents import body_of, header_fields, require_changes, whole_body
from api.cli.errors import CommandError, Status, combined
from api.cli.options import (
    ACCOUNT,
    NODE,
    OF_NODE,
    PROXY,
    Option,
    argument,
    choice,
    find,
    find_id,
    flag,
    number,
    option,
    switch,
    text,
    texts,
)
from api.cli.quantities import Quantity, size, span, span_option
from api.cli.terminal import PASSWORD_STDIN, Column, Detail, fields_of, inside, pairs_of, password, titled
from config.model.choices import ProxyProtocol, ProxyStatus, TlsNameCheck
from config.text.formatting import counted

group = new_group("proxies", "Proxies: list, create, change, start, stop, test.")

ONE_PROXY = {"proxy": key_argument(PROXY)}
PROXIES = {"proxies": argument("PROXY", "Names or ids.", list[str], complete=PROXY)}


def address(row: Any) -> str:
    """The address that a proxy listens at; in a fleet on the asked node, or else on the first one that runs it."""
    host = str((row.get("runtime") or {}).get("host") or row["host"])
    is_ipv6 = ":" in host and "{" not in host  # {address:public} stands for one of the node
    return f"[{host}]:{row['port']}" if is_ipv6 else f"{host}:{row['port']}"


def _runs_at(session: Session, proxy: Any) -> str:
    """The address of a new proxy; of what stands for one of a node that on the first node that runs it."""
    if "{" not in proxy["host"]:
        return address(proxy)
    from config.model.nodes import NodeRecord, NodesOfProxy, filled  # with pydantic, which commands do without

    try:
        every = [NodeRecord.model_construct(**each) for each in NODE.all(session.api)]
    except CommandError:  # they are not for this caller; the proxy is made
        return address(proxy)
    runs_on = [each for each in every if NodesOfProxy.model_validate(proxy["nodes"]).selects(each)]
    for node in runs_on:
        with suppress(KeyError):
            others = f", and on {counted(len(runs_on) - 1, 'other node')}" if runs_on[1:] else ""
            host = filled(proxy["host"], node.name, node.addresses)
            return f"{address({**proxy, 'host': host})} on {node.name}{others}"
    return address(proxy)


def transferred(stats: Any) -> Quantity:
    """Transferred bytes in both directions."""
    return size(stats["bytes_in"] + stats["bytes_out"])


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
    *titled("status", ("STATE", lambda row: state(row["runtime"]))),
    *titled(("CONNECTIONS", "stats.active_connections"), ("REQUESTS", "stats.total_requests"), right=True),
    Column("TRANSFERRED", lambda row: transferred(row["stats"]), right=True, spare=3),
    Column("UPTIME", lambda row: span(row["stats"]["uptime_seconds"]), right=True, spare=2),
    Column("TAGS", "tags", spare=1),
    Column("ID", "id", spare=4, whole=True),
)


def _port(given: str) -> int | str:
    """As the API has it: one port is a number."""
    return int(given) if given.isascii() and given.isdigit() else given


FIELDS = {
    "name": text("--name", "A name that no other proxy has."),
    "protocol": choice("--protocol", "The protocol of clients.", ProxyProtocol),
    "port": text("--port -p", "The port to listen at, or a range: 20000-20999.", parse=_port),
    "host": text("--host", "The address to listen at; of a new proxy by default 127.0.0.1."),
    "settings.timeout": span_option("--idle-timeout", "How long a connection may have no traffic."),
    "settings.max_connections": number("--max-connections", "Connections at the same time."),
    "settings.keep_alive": switch("--keep-alive/--no-keep-alive", "Keep connections of clients between requests."),
    "sleep_after": span_option("--sleep-after", "How long it has a process without a client; 0: for ever."),
    "tls_name": choice("--tls-name", "What becomes of the name in the TLS handshake of a tunnel.", TlsNameCheck),
    "tls_ports": option(
        list[int] | None,
        "--tls-port",
        "A port whose tunnels are checked; may be repeated. Replaces all; none: --set 'tls_ports=[]'.",
        min=1,
        max=65535,
    ),
    "headers.via": choice(
        "--via",
        "What the proxy adds to Via: a name of its own, host name and port, or nothing.",
        ("pseudonym", "on", "off"),
    ),
    "headers.forwarded": choice(
        "--forwarded",
        "The field of plain HTTP that tells origins the client's address.",
        ("off", "x-forwarded-for", "rfc7239"),
    ),
    "headers.set": texts(
        "--set-header",
        "NAME: VALUE of a field of plain HTTP; may be repeated. Replaces all.",
        parse=partial(header_fields, "--set-header"),
    ),
    "headers.remove": texts("--remove-header", "The name of a field of plain HTTP; may be repeated. Replaces all."),
    "nodes.names": texts(
        "--node", "Only on this node; may be repeated. All: --set 'nodes={\"all\": true}'.", complete=NODE
    ),
    "nodes.tags": texts("--node-tag", "Only on nodes with this tag; may be repeated."),
    "policy": text("--policy", "The policy that judges its requests; none: --set policy=null."),
    "pool": text("--pool", "The pool of upstreams that it uses in place of its own; none: --set pool=null."),
    "username_params.enabled": switch(
        "--username-params/--no-username-params", "User names may have parameters, such as alice-session-7-country-de."
    ),
    "dns.servers": texts(
        "--dns-server", "A name server: address, tls://ADDRESS or https://NAME/PATH; may be given several times."
    ),
    "auth.backend.url": text("--auth-backend", "The URL of a service that decides about users who are no accounts."),
    "tls.cert_file": text("--cert-file", "For https and mixed: the certificate, an absolute path on its machine."),
    "tls.key_file": text("--key-file", "Its private key, likewise."),
    "tls.client_ca": text("--client-ca", "With TLS: ask clients for a certificate of the authorities in this file."),
    "tls.client_auth": choice(
        "--client-auth", "Whether clients must show a certificate; by default they must.", ("require", "optional")
    ),
    "tls.client_crl": text("--client-crl", "Certificates of clients that are revoked: a file with revocation lists."),
    "description": text("--description", "A text about the proxy."),
    "tags": texts("--tag", "A tag; may be given several times. Replaces all tags."),
}
"""Options of `create` and `update` by the field of the API that they set."""
OPTIONS = {"tls": "--cert-file and --key-file"}
"""Options for further fields."""
_SIGN_IN = {
    "auth.username": text("--username", "The user that clients must sign in as; the password is asked for."),
    "password_stdin": PASSWORD_STDIN,
}
_BODY = whole_body("settings.timeout=60", "limits.bandwidth_in=1Mbit/s", 'access.deny_destinations=["*.example"]')
_FILTERS = {
    "status": choice("--status", "Only those of this status.", ProxyStatus),
    "protocol": choice("--protocol", "Only those of this protocol.", ProxyProtocol),
    "tag": texts("--tag", "Only those with this tag; several must all be there."),
    "q": text("--search", "Only those with this text in name, host, port or a tag."),
    "sort": text(
        "--sort", "name, created_at, port, status, connections, requests, errors, traffic, rate; or - and this."
    ),
}


@command(group, "list", _FILTERS)
def list_proxies(session: Session, sort: str | None, fields: Given) -> None:
    """List proxies."""
    proxies = list(session.api.pages("/proxies", "proxies", "per_page", **fields, sort=sort))
    filtered = any(value is not None for value in fields.values())
    nothing = "No proxy matches." if filtered else FIRST_STEP
    data = {"proxies": proxies, "pagination": one_page(len(proxies)), "next_cursor": None}
    session.out.data(data, lambda: session.out.table(COLUMNS, proxies, nothing))


def one_page(total: int) -> dict[str, Any]:
    """The API's `pagination` of a single page."""
    whole = {"page": 1, "per_page": total, "total": total, "pages": 1}
    return {**whole, "has_next": False, "has_prev": False}


FIRST_STEP = "There is no proxy yet. Create one: proxyfleet proxies create first --protocol http --port 3128"


@command(group, "show", ONE_PROXY)
def show_proxy(session: Session, proxy: str) -> None:
    """Show the configuration and state of a proxy."""
    data = session.api.get(path_of(session, proxy))
    session.out.data(data, lambda: session.out.details(pairs_of(data["proxy"], DETAILS)))
    warn(session, data)


_CREATE = {
    "given_name": argument("NAME", "A name that no other proxy has; or --name.", default=None),
    **FIELDS,
    **_SIGN_IN,
    **_BODY,
}


@command(group, "create", _CREATE, OPTIONS)
def create_proxy(session: Session, given_name: str | None, fields: Given, password_stdin: bool) -> None:
    """Create a proxy and start it. Name, protocol and port are required, as arguments or in a file."""
    fields["name"] = either("--name", given_name, fields["name"])
    body = body_of(fields)
    _credentials(body, fields["auth.username"], password_stdin, wants_password=body.get("protocol") != "socks4")
    data = session.api.post("/proxies", body)
    made = data["proxy"]
    _print_done(session, data, f"{made['name']} listens at {_runs_at(session, made)} ({made['id']}).")


_UPDATE = {
    **ONE_PROXY,
    **FIELDS,
    **_SIGN_IN,
    "auth.enabled": flag(
        "--no-sign-in", "Accept clients without credentials.", parse=lambda given: False if given else None
    ),
    "add_tag": texts("--add-tag", "A tag to add; may be repeated."),
    "remove_tag": texts("--remove-tag", "A tag to remove; may be repeated."),
    **_BODY,
}


@command(group, "update", _UPDATE, OPTIONS)
def update_proxy(session: Session, proxy: str, fields: Given, password_stdin: bool) -> None:
    """Change a proxy: only given fields change. A new address is listened at before the old one closes."""
    more, fewer = fields.pop("add_tag") or [], fields.pop("remove_tag") or []
    body = body_of(fields)
    _credentials(body, fields["auth.username"], password_stdin, wants_password=password_stdin)
    path = path_of(session, proxy)
    headers = _change_tags(session, path, body, more, fewer) if more or fewer else {}
    require_changes(body, "proxies")
    data = session.api.call("PATCH", path, body=body, headers=headers)
    _print_done(session, data, f"{data['proxy']['name']} is changed.")


def _print_done(session: Session, data: dict[str, Any], done: str) -> None:
    """Print what was done, and the signing secret of the back end, if it was just set; programs have it in the data."""
    session.out.done(data, done)
    secret = (data["proxy"]["auth"].get("backend") or {}).get("secret")
    if secret is not None and session.out.format != "json":
        session.out.note(f"requests to the back end are signed with {secret}; the secret is shown only now")
    warn(session, data)


def _change_tags(
    session: Session, path: str, body: dict[str, Any], more: list[str], fewer: list[str]
) -> dict[str, str | bytes]:
    """Set the tags in `body`. Returns the header that makes the change conditional on the tags that were read."""
    if "tags" in body:
        raise CommandError("--tag replaces all tags", "Give either --tag, or --add-tag and --remove-tag", Status.USAGE)
    tags = session.api.get(path)["proxy"]["tags"]
    body["tags"] = [each for each in dict.fromkeys([*tags, *more]) if each not in fewer]
    return {"If-Match": session.api.etag or "*"}


_SELECTING = ("status", "protocol", "tag", "q", "account")
_CHANGE = {
    "proxies": argument("PROXY", "Names or ids; or options that select them.", list[str], complete=PROXY, default=None),
    **{name: each for name, each in _FILTERS.items() if name in _SELECTING},
    "account": text("--account", "Only those that this account may use: its name or id.", of=ACCOUNT),
    "every": flag("--all", "Every proxy."),
    "add_tags": _UPDATE["add_tag"],
    "remove_tags": _UPDATE["remove_tag"],
    **whole_body("limits.bandwidth_out=1Mbit/s", "sleep_after=600", "policy=people", "status=inactive"),
    "dry_run": flag("--dry-run", "List the changes, and make none."),
    "yes": YES,
}


@command(group, "change", _CHANGE)
def change_proxies(
    session: Session, proxies: list[str] | None, every: bool, dry_run: bool, yes: bool, fields: Given
) -> None:
    """Change many proxies, all of them or none: those that are named, or that match all options.

    Lists the changes and asks. It is one revision: proxyfleet rollback --only takes it back.
    """
    from api.cli.remote.import_export import Changes, print_revision  # which few commands need

    where = {name: value for name in _SELECTING if (value := fields.pop(name)) is not None}
    if [bool(proxies), bool(where), every].count(True) != 1:
        hint = "Such as: proxyfleet proxies change --tag eu --set sleep_after=600"
        raise CommandError("Which proxies? Give names, or options that select them, or --all", hint, Status.USAGE)
    if proxies:
        where = {"ids": [find_id(session.api, PROXY, each) for each in proxies]}
    body = body_of(fields)
    require_changes(body, "proxies")
    sent = {"body": {"update": [{"where": where or {"all": True}, "set": body}]}}
    changes = Changes(session, "/proxies/batch", {}, lambda plan: _batch_lines(session, plan), sent)
    _changed, done = changes.listed_and_made(dry_run, yes)
    if done is not None:
        print_revision(session, done)


def _batch_lines(session: Session, plan: Any) -> Iterator[str]:
    from api.cli.remote.import_export import change_lines, summary_text

    for change in plan["changes"]:
        yield from change_lines(session, change, change["fields"])
    yield summary_text(plan["summary"], "would be " if plan["dry_run"] else "")


@command(group, "delete", {**PROXIES, "yes": YES})
def delete_proxy(session: Session, proxies: list[str], yes: bool) -> None:
    """Delete proxies; their connections drain."""
    found = [find(session.api, PROXY, each) for each in proxies]
    names = ", ".join(one["name"] for one in found)
    confirm(f"Delete {names}?", yes)
    _each(session, found, lambda one: session.api.delete(f"/proxies/{one['id']}"), "is deleted")


def _action(name: str, about: str, more: Mapping[str, Option] = NOTHING) -> None:
    """A command that does one thing to each of several proxies; `more` are parameters of the request."""

    def act(session: Session, proxies: list[str], fields: Given) -> None:
        found = [find(session.api, PROXY, each) for each in proxies]
        _each(session, found, lambda one: session.api.call("POST", f"/proxies/{one['id']}/{name}", query=fields))

    command(group, name, {**PROXIES, **more}, about=about)(act)


_action("start", "Start proxies.")
_action("stop", "Stop proxies; their connections drain.")
_action("restart", "Restart proxies, each with a new process on the same socket: no connection is refused.", OF_NODE)


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


def _each(
    session: Session, found: Iterable[dict[str, Any]], act: Callable[[dict[str, Any]], Any], done: str | None = None
) -> None:
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
        warn(session, data)
        session.out.note_missing(data)
        session.out.message(f"{one['name']}: {done or data['message']}")
    session.out.data({"results": results}, lambda: None)
    if failures:
        raise combined(failures)


# --- what `show` prints ---


def _error(proxy: Any) -> Any:
    runtime = proxy["runtime"] or {}
    return [f"{each['error']} (since {each['since']})" for each in runtime.get("problems") or ()] or runtime.get(
        "error"
    )


def _processes(proxy: Any) -> Any:
    runtime = proxy["runtime"] or {}
    return [each["pid"] for each in runtime.get("workers") or ()] or runtime.get("pid")


def _headers(proxy: Any) -> Quantity:
    headers = proxy["headers"]
    return fields_of({**headers, "set": [f"{name}: {value}" for name, value in headers["set"].items()]})


def _dns(proxy: Any) -> Quantity:
    return fields_of({name: value for name, value in proxy["dns"].items() if value not in ("default", {})})


def _tls_names(proxy: Any) -> Quantity | str:
    """What becomes of the names in handshakes, and at which ports; without ports it becomes nothing of them."""
    if not proxy["tls_ports"]:
        return f"tls_name {proxy['tls_name']}, but tls_ports is empty: no port is checked"
    return fields_of({name: proxy[name] for name in ("tls_name", "tls_ports")})


def _exit(proxy: Any) -> str | None:
    """`pool paris, 3 of 4 usable`, `own upstreams, 1 of 2 usable`, `direct to targets`; None while it is not known."""
    found = inside(proxy, "runtime.exit")
    if found is None:
        return None
    if found["kind"] == "direct":
        return "direct to targets"
    where = f"pool {found['pool']}" if found["kind"] == "pool" else "own upstreams"
    if found["usable"] is None:
        return where
    unknown = f", {found['unknown']} unknown" if found["unknown"] else ""
    return f"{where}, {found['usable']} of {found['total']} usable{unknown}"


def _sign_in(proxy: Any) -> str:
    if not proxy["auth"]["enabled"]:
        return "not required"
    username = proxy["auth"]["username"]
    return str(username) if username else "as an account" if proxy["accounts"] else OF_THE_FLEET


OF_THE_FLEET = "required, without an account of its own: all clients are rejected but accounts of the fleet"


def _nodes(proxy: Any) -> Any:
    """`fra1 (running)`; without a fleet that it runs wherever there is a node."""
    known = inside(proxy, "runtime.nodes") or ()
    states = [f"{each['node']} ({each['error'] or each['state']})" for each in known]
    return states or ("all" if proxy["nodes"].get("all") else fields_of(proxy["nodes"]))


def _upstreams(proxy: Any) -> list[str]:
    """Names of upstreams, each with its state if that is known."""
    known = {each["name"]: each["state"] for each in inside(proxy, "runtime.upstreams") or ()}
    names = [str(each["name"]) for each in proxy["upstreams"]]
    return [f"{name} ({known[name]})" if name in known else name for name in names]


DETAILS: tuple[Detail, ...] = (
    *("name", "id"),
    ("address", lambda proxy: f"{proxy['protocol']}://{address(proxy)}"),
    "status",
    ("state", lambda proxy: (proxy["runtime"] or {}).get("state", "unknown")),
    ("error", _error),
    "workers",
    ("process", _processes),
    ("restarts", "runtime.restarts"),
    ("uptime", lambda proxy: span(proxy["stats"]["uptime_seconds"])),
    ("connections", "stats.active_connections"),
    ("requests", lambda proxy: "{total_requests} ({errors} failed, {denied} denied)".format(**proxy["stats"])),
    ("transferred", lambda proxy: transferred(proxy["stats"])),
    ("last request", "stats.last_request"),
    ("sign-in", _sign_in),
    ("accounts", lambda proxy: [each["username"] for each in proxy["accounts"]]),
    ("settings", lambda proxy: fields_of(proxy["settings"])),
    ("sleep", lambda proxy: fields_of({"sleep_after": proxy["sleep_after"]})),
    ("limits", lambda proxy: fields_of(proxy["limits"])),
    ("access", lambda proxy: fields_of(proxy["access"])),
    ("TLS names", _tls_names),
    ("headers", _headers),
    ("user names", lambda proxy: fields_of(proxy["username_params"])),
    ("exit", _exit),
    *("pool", "policy"),
    ("nodes", _nodes),
    ("dns", _dns),
    ("upstreams", _upstreams),
    *("description", "tags", "created_at", "updated_at"),
)
