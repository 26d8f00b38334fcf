"""`proxyfleet proxies test`, `explain` and `snippets`: a request through a proxy, its decision, clients' settings."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import typer

from api.cli.commands import Given, Session, command
from api.cli.documents import body_of, read_mapping
from api.cli.errors import CommandError, Status
from api.cli.options import OF_NODE, PROXY, argument, file_option, find, flag, number, text
from api.cli.quantities import moment_option, span_option
from api.cli.remote.proxies import ONE_PROXY, PROXIES, group, path_of
from api.cli.terminal import PASSWORD_STDIN, Column, password, titled
from config.net.addresses import is_address
from config.text.reasons import words_of

Pair = tuple[str, str]
"""A line of details."""


def _credential(given: str) -> str:
    if not given.startswith("crd_"):
        hint = "proxyfleet credentials list ACCOUNT has the ids"
        raise CommandError(f"--credential {given!r}: must be an id, crd_…", hint, status=Status.USAGE)
    return given


_TEST = {
    **PROXIES,
    "url": text("--target", "The URL to request; by default proxy.test_url."),
    "timeout": span_option("--wait", "How long a test may take, at most 1m.", "15s", 0.1, 60),
    **OF_NODE,
}
_SNIPPETS = {
    **ONE_PROXY,
    "client": argument("CLIENT", "curl, environment, python, git, pip, apt, docker, chromium, firefox.", default=None),
    "username": text("--user", "The user name in the lines."),
    "host": text("--host", "The host of the proxy for clients."),
    "with_password": flag("--password", "Ask for the password, and insert it."),
    "password_stdin": PASSWORD_STDIN,
}
_EXPLAIN = {
    **ONE_PROXY,
    "target": argument("TARGET", "A URL, or host:port."),
    "client_ip": text("--client", "The address of the client; by default yours, as the API sees it."),
    "user": text("--user", "The user of the client; by default none."),
    "credential": text("--credential", "The id of a credential that the client uses.", parse=_credential),
    "method": text("--method", "Of a request for an http URL; by default GET."),
    "listen_port": number("--listen-port", "The port of the proxy; by default its first.", min=1, max=65535),
    "tls_name": text("--tls-name", "The name in the TLS handshake of a tunnel; empty for a handshake without one."),
    "at": moment_option("--at", "When, such as 22:30 or 2h for in two hours; by default now.", direction=1),
    "draft": file_option(
        "--draft",
        "A policy to try before it is stored: its name and rules in TOML or JSON; - is standard input.",
        parse=read_mapping,
    ),
    **OF_NODE,
}


@command(group, "test", _TEST)
def try_proxies(session: Session, proxies: list[str], fields: Given, node: str | None) -> None:
    """Send one request through each proxy; ends with 1 if one of them failed."""
    found = [find(session.api, PROXY, each) for each in proxies]
    body, wait = body_of(fields), fields["timeout"]
    results = []
    for one in found:
        path = f"/proxies/{one['id']}/test"
        data = session.api.call("POST", path, body=body, timeout=wait + 15, query={"node": node})
        results += [{"proxy": one["name"], **each} for each in data.get("nodes") or [data["test_result"]]]
        session.out.note_missing(data)
    columns = (Column("NODE", "node"), *TESTED) if any("node" in each for each in results) else TESTED
    session.out.data({"test_results": results}, lambda: session.out.table(columns, results))
    if any(result["status"] != "success" for result in results):
        raise typer.Exit(int(Status.FAILED))


TESTED = (
    *titled("proxy", ("RESULT", "status")),
    *titled(("STATUS", "status_code"), ("MS", "response_time"), right=True),
    *titled("external_ip", ("UPSTREAM", "parent"), "error"),
)


_SECRET = re.compile(r"(?<=:)PASSWORD(?=@)|(?<=//)CREDENTIAL(?=:@)")


@command(group, "snippets", _SNIPPETS)
def show_snippets(session: Session, proxy: str, client: str | None, password_stdin: bool, fields: Given) -> None:
    """Show configuration lines for clients of a proxy.

    PASSWORD is a placeholder: the product does not know the password. The percent-encoded password replaces it, as with
    --password. USER is one where the proxy has no user of its own, CREDENTIAL where SOCKS4 needs a credential.
    """
    with_password = fields.pop("with_password") or password_stdin
    data = session.api.get(f"{path_of(session, proxy)}/snippets", **fields)
    snippets = data["snippets"]
    if client is not None:
        if client not in snippets:
            raise CommandError(f"There are no lines for {client!r}", f"Clients: {', '.join(snippets)}", Status.USAGE)
        snippets = data["snippets"] = {client: snippets[client]}
    is_missing = any(_SECRET.search(text or "") for text in snippets.values())
    if with_password:
        secret = quote(password("The proxy's password", password_stdin), safe="")
        for name, text in snippets.items():
            snippets[name] = text and _SECRET.sub(secret, text)
        if not is_missing:
            session.out.note("note: these lines have no password")
    elif is_missing:
        session.out.note(
            "note: replace PASSWORD by the percent-encoded password; --password asks for it and inserts it"
        )
    if any("//USER:" in (text or "") for text in snippets.values()):
        session.out.note("note: replace USER by the user name of an account; --user inserts it")
    if client is not None and snippets[client] is None:
        raise CommandError(f"{client} doesn't speak the protocol of {proxy}", "Without a client all lines are shown")
    titled = [f"# {name}\n{text or '# (does not speak this protocol)'}\n" for name, text in snippets.items()]
    session.out.data(data, lambda: session.out.lines([str(snippets[client])] if client else titled))


@command(group, "explain", _EXPLAIN)
def explain(session: Session, proxy: str, tls_name: str | None, node: str | None, fields: Given) -> None:
    """Show what would happen to a request, and which rule decides.

    For a proxy that requires credentials name a --user or a --credential; without one the result is that of a client
    without any (407). A --draft is judged in place of the policy of its name, else of that of the proxy.
    """
    body = {name: value for name, value in fields.items() if value not in (None, "")}
    if tls_name is not None:
        body["tls_name"] = tls_name
    data = session.api.call("POST", f"{path_of(session, proxy)}/explain", {"node": node}, body)
    names = ("rule", "stage", "mode")
    addresses = [
        (each["address"], f"{each['decision']} {_reason(each['reason'])}".rstrip()) for each in data["addresses"]
    ]
    decides, others = _split_by_decision(data["rules"], data["rule"])
    known = [("user name", _understood(data["name"]))] if data["name"] else []
    changed = [("headers", headers)] if (headers := _headers(data["headers"])) else []
    assumed = [("assumed", f"the {each} is right; a wrong one is 407") for each in data["assumed"]]
    pairs = [
        ("decision", data["decision"]),
        ("reason", _reason(data["reason"])),
        *((name, data[name]) for name in names),
        *([("node", data["node"])] if "node" in data else []),
        *assumed,
        *decides,
        *known,
        *addresses,
        *_upstreams(data["upstreams"]),
        *_tls_name(data),
        *changed,
        *others,
    ]
    session.out.data(data, lambda: session.out.details(pairs))


def _reason(reason: str) -> str:
    """`policy_denied: denied by a policy`; empty without one."""
    return f"{reason}: {words_of(reason)}" if reason else ""


def _split_by_decision(rules: list[dict[str, Any]], deciding: str | None) -> tuple[list[Pair], list[Pair]]:
    """The rule that decides, if it is of a policy, and the others."""
    found: tuple[list[Pair], list[Pair]] = ([], [])
    for each in rules:
        place = f"{each['policy']}[{each['index']}]"
        found[deciding != f"policy {place} {each['name']}"].append((place, _matching(each)))
    return found


def _headers(headers: dict[str, Any]) -> list[str]:
    """What the proxy does to the header fields of a plain request, a line each."""
    removed = [f"{name}: (removed)" for name in headers["remove"]]
    return [*(f"{name}: {value}" for name, value in headers["set"].items()), *removed]


def _understood(name: dict[str, Any]) -> str:
    """How a user name with parameters was understood, in one line."""
    session = [] if name["session"] is None else [f"session {name['session']} for {name['ttl']:g} s"]
    pairs = [f"{key} {value}" for key, value in (name["labels"] | name["marks"]).items()]
    unknown = [f"unknown: {' '.join(name['unknown'])}"] if name["unknown"] else []
    rotate = ["rotate"] if name["rotate"] else []
    return "; ".join([name["account"], *session, *pairs, *rotate, *unknown, *filter(None, [name["problem"]])])


def _upstreams(found: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The upstream that a request would go through, and those that are left out."""
    if found is None:
        return []
    pool = f"pool {found['pool']}: " if found["pool"] else ""
    chosen = f"{pool}{found['chosen'] or 'none'} by {found['policy']}, {found['usable']} of {found['total']} usable"
    return [("upstream", chosen), *((each["name"], each["why"]) for each in found["left_out"])]


_CHECKS = {
    "off": "is not read",
    "record": "is recorded, and nothing is refused",
    "match": "must be {host}",
    "allowed": "must be one that this request might have been for",
}


def _tls_name(data: dict[str, Any]) -> list[Pair]:
    """What becomes of the name in the handshake, and of the one that was asked about."""
    found, target = data["tls_name"], data["target"]
    if not found["port_checked"]:
        return [("TLS name", f"is not read in what goes to port {target['port']}")] if found["name"] is not None else []
    if data["decision"] == "deny" and data["stage"] != "tls_name":
        return [("TLS name", "is not reached")] if found["name"] is not None else []
    judged = "allowed" if found["check"] == "match" and is_address(target["host"]) else found["check"]
    pairs = [("TLS name", f"{_CHECKS[judged].format(**target)} ({found['check']}: {found['rule']})")]
    if found["kind"] is None:
        return pairs
    is_refused = "is refused" if data["decision"] == "deny" else "is reported"
    became = f"{is_refused}: {found['detail']}" if found["detail"] else f"passes ({found['kind']})"
    return [*pairs, (found["name"] or "without a name", became)]


_MATCHES = {"yes": "matches", "no": "does not match", "unknown": "may match"}


def _matching(rule: dict[str, Any]) -> str:
    """What a rule of a policy has to do with a request, in one line."""
    report = " (report)" if rule["mode"] == "report" else ""
    return f"{rule['name']!r}{report} {_MATCHES[rule['matches']]}: {rule['why']}"
