"""`proxyfleet lists …`, `pools …`, `policies …`: what proxies, accounts and plans name; and `webhooks …`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import typer

from api.cli.client import ApiClient, quoted
from api.cli.commands import RESOURCES, TOP, Commands, Given, Session, command, key_argument, warn
from api.cli.documents import body_of, header_fields
from api.cli.errors import CommandError, Status
from api.cli.options import (
    LIST,
    OF_NODE,
    POLICY,
    POOL,
    PROXY,
    WEBHOOK,
    Option,
    ResourceKind,
    argument,
    choice,
    find_id,
    flag,
    number,
    option,
    sent,
    switch,
    text,
    texts,
)
from api.cli.quantities import moment_option, span_option
from api.cli.terminal import Column, Detail, Pairs, Row, fields_of, pairs_of, titled, with_node
from config.model.choices import LIST_FORMATS, LIST_KINDS, POOL_FORMATS, POOL_POLICIES
from config.net.names import in_a_labels
from config.text.formatting import parse_moment

CHECK_PAUSE = 0.2
"""Seconds until a check is looked at again."""
CHECK_MARGIN = 5.0
"""Seconds in which the process of the checks starts."""


def _commands(
    kind: ResourceKind,
    about: str,
    columns: Sequence[Column],
    entries: str,
    entry: Callable[[Any], Any],
    details: Sequence[Detail],
    fields: Mapping[str, Option],
    examples: Sequence[str],
) -> typer.Typer:
    """A group. `entries` is the field that `show` prints one by one, `entry` what one of them is in a line."""

    def lines(view: Row) -> Pairs:
        listed = [("" if index else entries, entry(each)) for index, each in enumerate(view[entries])]
        first = pairs_of(view, ("name", "id", "description", *details, ("used by", _users)))
        return [*first, *_fetched(view), *listed, ("created", view["created_at"])]

    return Commands(
        kind,
        f"{kind.group.capitalize()}: {about}.",
        (*columns, _USED, Column("DESCRIPTION", "description", spare=True), Column("ID", "id", whole=True)),
        lines,
        {"description": text("--description", "What it is for."), **fields},
        text("--name", "Another name; not while something names it."),
        examples,
    ).group()


_USED = Column("USED BY", "used_by.total", right=True)


def _users(view: Mapping[str, Any]) -> str | None:
    """`proxy office, plan basic`, and how many more."""
    used = view["used_by"]
    named = [f"{each['kind']} {each['name']}" for each in used["first"]]
    more = used["total"] - len(named)
    return ", ".join([*named, *([f"{more} more"] if more else [])]) or None


def _source(what: str, how: str, formats: Sequence[str], them: str, **more: Option) -> dict[str, Option]:
    """The options for a source; `more` of its fields come behind the URL."""
    return {
        "source.url": text("--source", f"Where the {what} are fetched from; a URL."),
        **{f"source.{name}": each for name, each in more.items()},
        "source.format": text("--format", f"How {how} written: {', '.join(formats)}."),
        "source.interval": span_option("--interval", f"How long it is between two requests for {them}."),
    }


def _fetched(view: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """How the last fetch of what has a source went, and the first lines that were skipped."""
    if not view.get("source"):
        return []
    status = view["status"].get("source") or view["status"]
    skipped = [f"line {each['line']}: {each['reason']}" for each in status["skipped_examples"]]
    about = {name: status[name] for name in ("fetched_at", "next_at", "last_error", "entries", "skipped")}
    return [("fetched", fields_of(about)), *(("" if index else "skipped", each) for index, each in enumerate(skipped))]


def _upstream(upstream: Mapping[str, Any]) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in upstream["labels"].items())
    return f"{upstream['name']}{f' ({labels})' if labels else ''}"


def _usable(pool: Mapping[str, Any]) -> str:
    """`3 of 4`, and whether the rest is known and used at all."""
    status = pool["status"]
    words = [f"{status['usable']} of {pool['upstream_count']}"]
    if status["unknown"]:
        words.append(f"{status['unknown']} unknown")
    if status["used"] is False:
        words.append("not used, so not checked")
    return ", ".join(words)


def _cooldown(spans: Mapping[str, Any]) -> str:
    """`connect 1-60 s, 407 60-600 s`."""
    return ", ".join(f"{kind} {first:g}-{longest:g} s" for kind, (first, longest) in spans.items())


def _rule(rule: Mapping[str, Any]) -> str:
    mode = "" if rule["mode"] == "enforce" else f", {rule['mode']}"
    action = rule["action"]
    words = [action["use"]] if action.get("use") else []
    if action.get("tls_name"):
        words.append(f"tls_name {action['tls_name']}")
    words += [name for name in ("headers", "egress", "limits") if action.get(name)]
    return f"{rule['name']}: {', '.join(words) or 'as without a rule'}{mode}"


def _group_of(name: str) -> Callable[[Row], Any]:
    """The fields of a group in one cell, None where there is none."""
    return lambda view: fields_of(view[name]) if view[name] else None


_DATABASE = text("--source-file", "The path of a database, for a list of kind geo.")
lists = _commands(
    LIST,
    "destinations that rules name",
    (Column("NAME", "name"), Column("KIND", "kind"), Column("ENTRIES", "entry_count", right=True)),
    "entries",
    str,
    ("kind", ("source", _group_of("source"))),
    {
        "kind": text("--kind", f"What the entries are: {', '.join(LIST_KINDS)}."),
        "entries": texts("--entry", "A domain or a network; may be repeated."),
        **_source("entries", "that is", LIST_FORMATS, "it", file=_DATABASE),
    },
    ("source.max_bytes=10000000", 'entries=["example.com"]'),
)
_LIST = {"key": key_argument(LIST)}


@command(lists, "check", {**_LIST, "target": argument("TARGET", "A host, host:port or a URL.")})
def check_list(session: Session, key: str, target: str) -> None:
    """Show which entry of a list matches a target. A list of networks, or a database, is checked with an address."""
    data = session.api.get(f"/lists/{quoted(key)}/check", target=target)
    session.out.data(data, lambda: session.out.details(list(data.items())))


@command(lists, "refresh", _LIST)
def refresh_list(session: Session, key: str) -> None:
    """Fetch a list from its source now; `show` has the result."""
    _refresh(session, LIST, key, f"{key} is being fetched.")


def _refresh(session: Session, kind: ResourceKind, key: str, text: str) -> None:
    data = sent(session.api, kind, key, lambda: session.api.post(f"{kind.path}/{quoted(key)}/refresh"))
    session.out.done(data, text)


pools = _commands(
    POOL,
    "upstreams that proxies share",
    (Column("NAME", "name"), Column("STATE", "status.state"), Column("USABLE", _usable), Column("POLICY", "policy")),
    "upstreams",
    _upstream,
    (
        "policy",
        ("state", "status.state"),
        ("usable", _usable),
        *((name, _group_of(name)) for name in ("source", "check", "retry")),
        ("cooldown", lambda pool: _cooldown(pool["cooldown"])),
    ),
    {
        "upstreams": option(
            Path | None, "--upstreams", "A file with an upstream per line, or CSV; - is stdin.", metavar="FILE"
        ),
        **_source("upstreams", "they are", POOL_FORMATS, "them"),
        "policy": text("--policy", f"How an upstream is chosen: {', '.join(POOL_POLICIES)}."),
    },
    ("retry.attempts=3", "cooldown.429=[60, 600]", "check.interval=60"),
)
_POOL = {"key": key_argument(POOL)}
_STATE_COLUMNS = (
    *titled(("UPSTREAM", "name"), "state"),
    *titled("latency", "failures", right=True),
    *titled("cooldown", ("UNTIL", "cooldown_until"), "banned_until"),
    Column("LAST ERROR", "last_error", spare=True),
)


@command(pools, "refresh", _POOL)
def refresh_pool(session: Session, key: str) -> None:
    """Fetch the upstreams of a pool from its source now; `show` has the result."""
    _refresh(session, POOL, key, f"The upstreams of {key} are being fetched.")


@command(pools, "state", _POOL)
def show_state(session: Session, key: str) -> None:
    """Show what is known of the upstreams of a pool: up or down, latency in ms, cool-downs and bans."""
    _print_state(session, _pool_status(session, key))


@command(pools, "check", _POOL)
def check_pool(session: Session, key: str) -> None:
    """Check the upstreams of a pool now, whether a proxy uses it or not, and show what is known of them then."""
    path = f"/pools/{quoted(key)}"
    before = _checks(_pool_status(session, key))
    deadline = time.monotonic() + session.api.post(f"{path}/check")["seconds"] + CHECK_MARGIN
    status = session.api.get(path)["pool"]["status"]
    while time.monotonic() < deadline and any(now <= was for now, was in zip(_checks(status), before, strict=False)):
        time.sleep(CHECK_PAUSE)
        status = session.api.get(path)["pool"]["status"]
    _print_state(session, status)


def _pool_status(session: Session, key: str) -> Any:
    data = sent(session.api, POOL, key, lambda: session.api.get(f"/pools/{quoted(key)}"))
    return data["pool"]["status"]


def _checks(status: Mapping[str, Any]) -> list[int]:
    return [each["checks"] for each in status["upstreams"]]


def _print_state(session: Session, status: Mapping[str, Any]) -> None:
    if status["used"] is False and session.out.format != "json":
        session.out.note("No active proxy uses the pool, so it is not checked by itself.")
    rows = status["upstreams"]
    session.out.data(status, lambda: session.out.table(_STATE_COLUMNS, rows, "The pool has no upstreams."))


_REPORT = {
    **_POOL,
    "upstream": argument("UPSTREAM", "Its name in the pool."),
    "verdict": argument("VERDICT", "bad: do not use it for a time; good: use it."),
    "seconds": span_option("--seconds", "How long a bad one is left alone; by default 10m."),
}


@command(pools, "report", _REPORT)
def report_upstream(session: Session, key: str, upstream: str, fields: Given) -> None:
    """Report that an upstream of a pool is bad, or good again. It holds for all proxies at once."""
    path = f"/pools/{quoted(key)}/upstreams/{quoted(upstream)}/report"
    data = session.api.post(path, body_of(fields))
    until = data["upstream"]["banned_until"]
    session.out.done(data, f"{upstream} is left alone until {until}." if until else f"{upstream} is used again.")


policies = _commands(
    POLICY,
    "rules in order, of which the first that matches decides",
    (Column("NAME", "name"), Column("RULES", "rule_count", right=True)),
    "rules",
    _rule,
    (),
    {},
    ("end_existing=true", 'rules=[{"name": "all", "match": {}, "action": {"use": "deny"}}]'),
)


EVERYWHERE = "everywhere"
"""What the policy for all proxies is called, unless the settings have one."""
_PLACES = {
    "destination": argument("HOST", "A host, *.NAME for all below it, a network or list:NAME; a :PORT may follow."),
    "proxies": texts("--proxy", "On this proxy alone; may be given several times.", complete=PROXY),
    "accounts": texts("--account", "For this account alone, or tag:TAG; may be given several times."),
}
_BLOCK = {
    **_PLACES,
    "until": moment_option("--for", "How long: 1h, 7d; or the date and time (UTC) of its end; by default for good.", 1),
    "reason": text("--reason", "A sentence for those who are refused."),
    "end_existing": flag("--end-existing", "End tunnels that are no longer allowed."),
}
_FIELDS_OF_BLOCK = {
    "match.destinations": "HOST",
    "match.proxies": "--proxy",
    "match.accounts": "--account",
    "match.until": "--for",
    "action.reason": "--reason",
}


class _Block:
    """What is refused, where and to whom: one rule of the policy for all proxies."""

    def __init__(
        self, api: ApiClient, destination: str, proxies: Sequence[str] | None, accounts: Sequence[str] | None
    ) -> None:
        where = f" on {', '.join(proxies)}" if proxies else ""
        whom = f" for {', '.join(accounts)}" if accounts else ""
        self.text = f"{destination}{where}{whom}"
        ids = [find_id(api, PROXY, each) for each in proxies or ()]  # they stay
        self._match = _given({"destinations": [destination], "accounts": list(accounts or ()), "proxies": ids})

    def rule(self, until: str | None, reason: str | None) -> dict[str, Any]:
        """The rule, to which the API gives its name."""
        match = {**self._match, **_given({"until": until})}
        return {"match": match, "action": _given({"use": "deny", "reason": reason})}

    def is_in(self, rule: Mapping[str, Any]) -> bool:
        """Whether a rule of a policy is this block, whatever it is called and whenever it ends."""
        found = _given({**rule["match"], "until": None})
        asked = {**self._match, "destinations": [_stored(each) for each in self._match["destinations"]]}
        same = found.keys() == asked.keys() and all(sorted(found[name]) == sorted(asked[name]) for name in asked)
        return same and rule["action"].get("use") == "deny"


def _stored(destination: str) -> str:
    """As the API keeps it."""
    try:
        return in_a_labels(destination)
    except ValueError:
        return destination  # which the API has never taken


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value}


@command(TOP, "block", _BLOCK, _FIELDS_OF_BLOCK, rich_help_panel=RESOURCES)
def block(
    session: Session,
    destination: str,
    proxies: list[str] | None,
    accounts: list[str] | None,
    until: str | None,
    reason: str | None,
    end_existing: bool,
) -> None:
    """Refuse a host on all proxies, by a rule before all others. The same again changes its end and reason alone.

    The rule is in the policy of the setting proxy.policy, which is made if there is none.
    """
    wanted = _Block(session.api, destination, proxies, accounts)
    rule = {**wanted.rule(until, reason), **_given({"end_existing": end_existing})}
    policy = _policy_of_all(session.api)
    if not policy:
        policy = EVERYWHERE
        if not any(each["name"] == policy for each in POLICY.all(session.api)):
            session.api.post("/policies", {"name": policy, "description": "rules for all proxies", "rules": []})
        session.api.patch("/settings", {"proxy": {"policy": policy}})
    data = session.api.post(f"/policies/{quoted(policy)}/rules", rule)
    warn(session, {"warnings": [each for each in data["warnings"] if each["field"].startswith("rules[0].")]})
    session.out.done(data, f"{wanted.text} is refused{f' until {until}' if until else ''}, by the policy {policy}.")


@command(TOP, "unblock", _PLACES, rich_help_panel=RESOURCES)
def unblock(session: Session, destination: str, proxies: list[str] | None, accounts: list[str] | None) -> None:
    """End a block, given as it was made."""
    wanted, policy = _Block(session.api, destination, proxies, accounts), _policy_of_all(session.api)
    rules = session.api.get(f"/policies/{quoted(policy)}")["policy"]["rules"] if policy else []
    left = [each for each in rules if not wanted.is_in(each)]
    if len(left) == len(rules):
        hint = f"Its rules: proxyfleet policies show {policy or EVERYWHERE}"
        raise CommandError(f"There is no block of {wanted.text}", hint, Status.NOT_FOUND)
    headers = {"If-Match": session.api.etag or "*"}
    data = session.api.call("PATCH", f"/policies/{quoted(policy)}", body={"rules": left}, headers=headers)
    session.out.done(data, f"{wanted.text} is no longer refused by the policy {policy}.")


def _policy_of_all(api: ApiClient) -> str:
    """The name of the policy for all proxies, empty for none."""
    return str(api.get("/settings")["proxy"]["policy"])


def _last_result(delivery: Any) -> str | None:
    attempts = delivery["attempts"]
    if not attempts:
        return None
    last = attempts[-1]
    return str(last["error"] or last["status_code"])


def _next_attempt(delivery: Any) -> str | None:
    """The time of the next attempt; a delivery that is due waits for earlier ones."""
    moment = delivery["next_attempt_at"]
    return moment if moment is None or parse_moment(moment) > time.time() else "after others"


WEBHOOKS = (
    *titled("name", "url", "events", "enabled"),
    Column("WAITING", "delivery_status.waiting", right=True),
    Column("LAST SUCCESS", "delivery_status.last_success_at", spare=True),
    Column("LAST ERROR", "delivery_status.last_error"),
    Column("ID", "id", whole=True),
)
DELIVERIES = (
    Column("CREATED", "created_at", whole=True),
    *titled("event", "status"),
    Column("ATTEMPTS", lambda row: len(row["attempts"]), right=True, spare=True),
    Column("LAST", _last_result),
    Column("NEXT", _next_attempt, spare=True),
    Column("ID", "id", whole=True),
)


def _hook_headers(hook: Any) -> list[str]:
    return [f"{name}: {'(kept secret)' if value is None else value}" for name, value in hook["headers"].items()]


def _print_secret(session: Session, made: Any) -> None:
    """The secret of what is new; a change has none."""
    if made.get("secret"):
        session.out.line(made["secret"])
        session.out.note("The secret is shown only once; the receiver checks the signatures of events with it.")


webhooks = Commands(
    WEBHOOK,
    "Webhooks and their deliveries.",
    WEBHOOKS,
    (
        *("name", "id", "url", "events"),
        ("headers", _hook_headers),
        "enabled",
        ("disabled because", "disabled_reason"),
        ("waiting", "delivery_status.waiting"),
        *((f"last {name}", f"delivery_status.last_{name}_at") for name in ("success", "failure")),
        ("last error", "delivery_status.last_error"),
        ("old secret until", "previous_secret_until"),
        *("created_at", "updated_at"),
    ),
    {
        "name": text("--name", "The name of the webhook."),
        "url": text("--target", "The URL that receives the events."),
        "events": texts("--event", "An event, a group (`proxy.*`) or `*`; may be given several times."),
        "headers": texts(
            "--header", "May be given several times.", metavar="'NAME: VALUE'", parse=partial(header_fields, "--header")
        ),
        "enabled": switch("--enable/--disable", "Send events or not."),
    },
    examples=('events=["proxy.*"]', "headers.X-Team=network"),
    texts={
        "create": "Create a webhook. Its secret is shown only once.",
        "update": "Change a webhook: only given fields change.",
        "delete": "Delete a webhook; its waiting deliveries are not sent.",
    },
    name="The name of the webhook; or --name.",
    afterwards=_print_secret,
).group()
_WEBHOOK = {"webhook": key_argument(WEBHOOK)}
_DELIVERIES = {
    **_WEBHOOK,
    "status": choice("--status", "Only those of this status.", ("waiting", "delivered", "failed")),
    "limit": number("--limit", "The number of deliveries at most.", default=100, min=1, max=1000),
    **OF_NODE,
}


@command(webhooks, "test", {**_WEBHOOK, **OF_NODE})
def try_webhook(session: Session, webhook: str, node: str | None) -> None:
    """Send a test event; ends with 1 if it could not be delivered."""
    data = session.api.call("POST", f"{_webhook_path(session, webhook)}/test", {"node": node}, timeout=60)
    session.out.note_missing(data)
    session.out.data(data, lambda: _print_tested(session, data))
    if not data["delivered"]:
        raise typer.Exit(int(Status.FAILED))


def _print_tested(session: Session, data: dict[str, Any]) -> None:
    """Each node of a fleet sends one: a row for each."""
    if data.get("nodes"):
        names = data["nodes"][0]
        session.out.table([Column(each.replace("_", " ").upper(), each) for each in names], data["nodes"])
    else:
        session.out.details([pair for pair in data.items() if pair[0] not in ("nodes", "meta")])


@command(webhooks, "rotate-secret", _WEBHOOK)
def rotate_secret(session: Session, webhook: str) -> None:
    """Sign with a new secret; both signatures are sent for a day. The secret is shown only once."""
    data = session.api.post(f"{_webhook_path(session, webhook)}/rotate-secret")
    session.out.data(data, lambda: _print_secret(session, data["webhook"]))


@command(webhooks, "deliveries", _DELIVERIES)
def deliveries(session: Session, webhook: str, status: str | None, limit: int, node: str | None) -> None:
    """List deliveries, newest first."""
    path = f"{_webhook_path(session, webhook)}/deliveries"
    data = session.api.get(path, status=status, limit=limit, node=node)
    columns = with_node(DELIVERIES, data)
    session.out.data(data, lambda: session.out.table(columns, data["deliveries"], "There is no delivery."))
    session.out.note_missing(data)


@command(webhooks, "redeliver", {**_WEBHOOK, "delivery": argument("DELIVERY", "The id of a delivery.")})
def redeliver(session: Session, webhook: str, delivery: str) -> None:
    """Send a delivery again."""
    path = f"{_webhook_path(session, webhook)}/deliveries/{quoted(delivery)}/redeliver"
    data = session.api.call("POST", path, timeout=60)
    session.out.done(data, sent_again(webhook, data["delivery"]))


def sent_again(webhook: str, delivery: dict[str, Any]) -> str:
    """The result of `redeliver`: earlier attempts say nothing about this one."""
    if delivery["status"] == "waiting":
        return f"{delivery['id']} is sent again; its result: proxyfleet webhooks deliveries {webhook}"
    return f"{delivery['id']} is {delivery['status']}: {_last_result(delivery)}"


def _webhook_path(session: Session, webhook: str) -> str:
    return f"/webhooks/{find_id(session.api, WEBHOOK, webhook)}"
