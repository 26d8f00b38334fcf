"""`proxyfleet lists …`, `pools …`, `policies …`: the same commands for each kind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from api.cli.commands import Session, YesOption, add_group, command, confirm
from api.cli.lookup import LIST, POLICY, POOL, Kind, find, sent
from api.cli.request_body import FileOption, body_of, require_changes, set_option
from api.cli.terminal.completion import names_of
from api.cli.terminal.field_groups import Fields
from api.cli.terminal.output import Column
from config.model.choices import LIST_FORMATS, LIST_KINDS, POOL_FORMATS, POOL_POLICIES

DESCRIPTION = Annotated[str | None, typer.Option("--description", help="What it is for.")]
NEW_NAME = Annotated[str | None, typer.Option("--name", help="Another name; not while something names it.")]
CHECK_PAUSE = 0.2
"""Seconds until a check is looked at again."""
CHECK_MARGIN = 5.0
"""Seconds in which the process of the checks starts."""
_SHARED = (Column("DESCRIPTION", "description", spare=True), Column("ID", "id", whole=True))


def add_commands(app: typer.Typer) -> None:
    """Add the groups to `app`."""
    for name, group in (("lists", lists), ("pools", pools), ("policies", policies)):
        add_group(app, name, group)


@dataclass(frozen=True, slots=True)
class Commands:
    """What the commands of a kind differ in. `fields` are options of `create` and `update` by field of the API.

    `entries` is the field that `show` prints one by one, `entry` what one of them is in a line, `details` the others.
    """

    kind: Kind
    collection: str
    about: str
    columns: Sequence[Column]
    entries: str
    entry: Callable[[Any], Any]
    details: Mapping[str, Callable[[Mapping[str, Any]], Any]]
    examples: Sequence[str]
    fields: Mapping[str, Any] = field(default_factory=dict)

    def group(self) -> typer.Typer:
        """The group of commands."""
        made = typer.Typer(help=f"{self.collection.capitalize()}: {self.about}.", no_args_is_help=True)
        for add in (self._list, self._show, self._create, self._update, self._delete):
            add(made)
        return made

    @property
    def _argument(self) -> Any:
        title = self.kind.title
        return typer.Argument(metavar=title.upper(), help="Its name or id.", autocompletion=names_of(self.kind))

    def _path(self, key: str) -> str:
        return f"/{self.collection}/{quote(key, safe='')}"

    def _list(self, group: typer.Typer) -> None:
        def list_objects(session: Session) -> None:
            found = list(self.kind.list_all(session.api))
            session.out.data(
                {self.collection: found},
                lambda: session.out.table(self.columns, found, f"There is no {self.kind.title}."),
            )

        _add(group, "list", list_objects, f"List {self.collection}.")

    def _show(self, group: typer.Typer) -> None:
        def show_object(session: Session, key: Any) -> None:
            data = sent(session.api, self.kind, key, lambda: session.api.get(self._path(key)))
            session.out.data(data, lambda: session.out.details(self._details(data[self.kind.title])))

        show_object.__annotations__["key"] = Annotated[str, self._argument]
        _add(group, "show", show_object, f"Show a {self.kind.title}.")

    def _details(self, view: Mapping[str, Any]) -> list[tuple[str, Any]]:
        named = [(name, view[name]) for name in ("name", "id", "description")]
        stated = [(name, value(view)) for name, value in self.details.items()]
        entries = [("" if index else self.entries, self.entry(each)) for index, each in enumerate(view[self.entries])]
        return [*named, *stated, *_fetched(view), *entries, ("created", view["created_at"])]

    def _create(self, group: typer.Typer) -> None:
        title = self.kind.title

        def create_object(
            session: Session, name: Any = None, *, fields: dict[str, Any], settings: Any = None, file: FileOption = None
        ) -> None:
            data = session.api.post(f"/{self.collection}", body_of({"name": name, **fields}, settings, file))
            _warn(session, data)
            session.out.done(data, f"{data[title]['name']} is created ({data[title]['id']}).")

        create_object.__annotations__["name"] = Annotated[
            str | None, typer.Argument(metavar="NAME", help="What others name it by; or in a file.", show_default=False)
        ]
        create_object.__annotations__["settings"] = self._settings
        _add(group, "create", create_object, f"Create a {title}.", {"description": DESCRIPTION, **self.fields})

    def _update(self, group: typer.Typer) -> None:
        def update_object(
            session: Session, key: Any, fields: dict[str, Any], settings: Any = None, file: FileOption = None
        ) -> None:
            body = body_of(fields, settings, file)
            require_changes(body, self.collection)
            data = sent(session.api, self.kind, key, lambda: session.api.patch(self._path(key), body))
            _warn(session, data)
            session.out.done(data, f"{data[self.kind.title]['name']} is changed.")

        update_object.__annotations__["key"] = Annotated[str, self._argument]
        update_object.__annotations__["settings"] = self._settings
        fields = {"description": DESCRIPTION, **self.fields, "name": NEW_NAME}
        _add(group, "update", update_object, f"Change a {self.kind.title}: only what is given changes.", fields)

    def _delete(self, group: typer.Typer) -> None:
        title = self.kind.title

        def delete_object(session: Session, key: Any, yes: YesOption = False) -> None:
            found = find(session.api, self.kind, key)
            confirm(f"Delete the {title} {found['name']}?", yes)
            data = session.api.delete(self._path(found["id"]))
            session.out.done(data, f"{found['name']} is deleted.")

        delete_object.__annotations__["key"] = Annotated[str, self._argument]
        _add(group, "delete", delete_object, f"Delete a {title} that nothing names.")

    @property
    def _settings(self) -> Any:
        return Annotated[list[str] | None, set_option(*self.examples)]


def _add(
    group: typer.Typer, name: str, function: Callable[..., None], text: str, fields: Mapping[str, Any] | None = None
) -> None:
    function.__doc__ = text
    command(group, name, fields=fields)(function)


def _warn(session: Session, data: Mapping[str, Any]) -> None:
    for each in data["warnings"]:
        session.out.note(f"warning: {each['field']}: {each['warning']}")


def _fetched(view: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """How the last fetch of what has a source went, and the first lines that were skipped."""
    if not view.get("source"):
        return []
    status = view["status"].get("source") or view["status"]
    skipped = [f"line {each['line']}: {each['reason']}" for each in status["skipped_examples"]]
    about = {name: status[name] for name in ("fetched_at", "next_at", "last_error", "entries", "skipped")}
    return [("fetched", Fields(about)), *(("" if index else "skipped", each) for index, each in enumerate(skipped))]


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


lists = Commands(
    LIST,
    "lists",
    "destinations that rules name",
    (Column("NAME", "name"), Column("KIND", "kind"), Column("ENTRIES", "entry_count", right=True), *_SHARED),
    "entries",
    str,
    {"kind": lambda found: found["kind"], "source": lambda found: Fields(found["source"]) if found["source"] else None},
    ("source.max_bytes=10000000", 'entries=["example.com"]'),
    {
        "kind": Annotated[str | None, typer.Option("--kind", help=f"What the entries are: {', '.join(LIST_KINDS)}.")],
        "entries": Annotated[list[str] | None, typer.Option("--entry", help="A domain or a network; may be repeated.")],
        "source.url": Annotated[
            str | None, typer.Option("--source", help="Where the entries are fetched from; a URL.")
        ],
        "source.file": Annotated[
            str | None, typer.Option("--source-file", help="The path of a database, for a list of kind geo.")
        ],
        "source.format": Annotated[
            str | None, typer.Option("--format", help=f"How that is written: {', '.join(LIST_FORMATS)}.")
        ],
        "source.interval": Annotated[
            int | None, typer.Option("--interval", help="Seconds between two requests for it.")
        ],
    },
).group()
ListArgument = Annotated[str, typer.Argument(metavar="LIST", help="Its name or id.", autocompletion=names_of(LIST))]


@command(lists, "check")
def check_list(
    session: Session,
    key: ListArgument,
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A host, host:port or a URL.")],
) -> None:
    """Show which entry of a list matches a target. A list of networks, or a database, is checked with an address."""
    data = session.api.get(f"/lists/{quote(key, safe='')}/check", target=target)
    session.out.data(data, lambda: session.out.details(list(data.items())))


@command(lists, "refresh")
def refresh_list(session: Session, key: ListArgument) -> None:
    """Fetch a list from its source now; `show` has the result."""
    data = sent(session.api, LIST, key, lambda: session.api.post(f"/lists/{quote(key, safe='')}/refresh"))
    session.out.done(data, f"{key} is being fetched.")


pools = Commands(
    POOL,
    "pools",
    "upstreams that proxies share",
    (
        Column("NAME", "name"),
        Column("STATE", "status.state"),
        Column("USABLE", _usable),
        Column("POLICY", "policy"),
        *_SHARED,
    ),
    "upstreams",
    _upstream,
    {
        "policy": lambda pool: pool["policy"],
        "state": lambda pool: pool["status"]["state"],
        "usable": _usable,
        "source": lambda pool: Fields(pool["source"]) if pool["source"] else None,
        "check": lambda pool: Fields(pool["check"]),
        "retry": lambda pool: Fields(pool["retry"]),
        "cooldown": lambda pool: _cooldown(pool["cooldown"]),
    },
    ("retry.attempts=3", "cooldown.429=[60, 600]", "check.interval=60"),
    {
        "upstreams": Annotated[
            Path | None,
            typer.Option("--upstreams", metavar="FILE", help="A file with an upstream per line, or CSV; - is stdin."),
        ],
        "source.url": Annotated[
            str | None, typer.Option("--source", help="Where the upstreams are fetched from; a URL.")
        ],
        "source.format": Annotated[
            str | None, typer.Option("--format", help=f"How they are written: {', '.join(POOL_FORMATS)}.")
        ],
        "source.interval": Annotated[
            int | None, typer.Option("--interval", help="Seconds between two requests for them.")
        ],
        "policy": Annotated[
            str | None, typer.Option("--policy", help=f"How an upstream is chosen: {', '.join(POOL_POLICIES)}.")
        ],
    },
).group()
PoolArgument = Annotated[str, typer.Argument(metavar="POOL", help="Its name or id.", autocompletion=names_of(POOL))]
_STATE_COLUMNS = (
    Column("UPSTREAM", "name"),
    Column("STATE", "state"),
    Column("LATENCY", "latency", right=True),
    Column("FAILURES", "failures", right=True),
    Column("COOLDOWN", "cooldown"),
    Column("UNTIL", "cooldown_until"),
    Column("BANNED UNTIL", "banned_until"),
    Column("LAST ERROR", "last_error", spare=True),
)


@command(pools, "refresh")
def refresh_pool(session: Session, key: PoolArgument) -> None:
    """Fetch the upstreams of a pool from its source now; `show` has the result."""
    data = sent(session.api, POOL, key, lambda: session.api.post(f"/pools/{quote(key, safe='')}/refresh"))
    session.out.done(data, f"The upstreams of {key} are being fetched.")


@command(pools, "state")
def show_state(session: Session, key: PoolArgument) -> None:
    """Show what is known of the upstreams of a pool: up or down, latency in ms, cool-downs and bans."""
    _print_state(session, _pool_status(session, key))


@command(pools, "check")
def check_pool(session: Session, key: PoolArgument) -> None:
    """Check the upstreams of a pool now, whether a proxy uses it or not, and show what is known of them then."""
    path = f"/pools/{quote(key, safe='')}"
    before = _checks(_pool_status(session, key))
    deadline = time.monotonic() + session.api.post(f"{path}/check")["seconds"] + CHECK_MARGIN
    status = session.api.get(path)["pool"]["status"]
    while time.monotonic() < deadline and any(now <= was for now, was in zip(_checks(status), before, strict=False)):
        time.sleep(CHECK_PAUSE)
        status = session.api.get(path)["pool"]["status"]
    _print_state(session, status)


def _pool_status(session: Session, key: str) -> Any:
    data = sent(session.api, POOL, key, lambda: session.api.get(f"/pools/{quote(key, safe='')}"))
    return data["pool"]["status"]


def _checks(status: Mapping[str, Any]) -> list[int]:
    return [each["checks"] for each in status["upstreams"]]


def _print_state(session: Session, status: Mapping[str, Any]) -> None:
    if status["used"] is False and session.out.format != "json":
        session.out.note("No active proxy uses the pool, so it is not checked by itself.")
    rows = status["upstreams"]
    session.out.data(status, lambda: session.out.table(_STATE_COLUMNS, rows, "The pool has no upstreams."))


@command(pools, "report")
def report_upstream(
    session: Session,
    key: PoolArgument,
    upstream: Annotated[str, typer.Argument(metavar="UPSTREAM", help="Its name in the pool.")],
    verdict: Annotated[str, typer.Argument(metavar="VERDICT", help="bad: do not use it for a time; good: use it.")],
    seconds: Annotated[
        int | None, typer.Option("--seconds", help="How long a bad one is left alone; 600 by default.")
    ] = None,
) -> None:
    """Report that an upstream of a pool is bad, or good again. It holds for all proxies at once."""
    body = {"verdict": verdict, **({} if seconds is None else {"seconds": seconds})}
    path = f"/pools/{quote(key, safe='')}/upstreams/{quote(upstream, safe='')}/report"
    data = session.api.post(path, body)
    until = data["upstream"]["banned_until"]
    session.out.done(data, f"{upstream} is left alone until {until}." if until else f"{upstream} is used again.")


policies = Commands(
    POLICY,
    "policies",
    "rules in order, of which the first that matches decides",
    (Column("NAME", "name"), Column("RULES", "rule_count", right=True), *_SHARED),
    "rules",
    _rule,
    {},
    ("end_existing=true", 'rules=[{"name": "all", "match": {}, "action": {"use": "deny"}}]'),
).group()
