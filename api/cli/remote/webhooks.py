"""`proxyfleet webhooks …`"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, command, either
from api.cli.errors import CommandError, Status
from api.cli.lookup import WEBHOOK, find, find_id
from api.cli.request_body import FileOption, body_of, set_option
from api.cli.terminal.completion import webhook_names
from api.cli.terminal.output import Column
from config.text.formatting import parse_moment

group = typer.Typer(help="Webhooks and their deliveries.", no_args_is_help=True)

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="Its name or id.", autocompletion=webhook_names)
]
EventOption = Annotated[
    list[str] | None, typer.Option("--event", help="An event, a group (`proxy.*`) or `*`; may be given several times.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="May be given several times.")
]
EnabledOption = Annotated[bool | None, typer.Option("--enable/--disable", help="Send or don't.", show_default=False)]
SetOption = Annotated[list[str] | None, set_option('events=["proxy.*"]', "headers.X-Team=network")]
UrlArgument = Annotated[str | None, typer.Option("--target", help="The URL that events are sent to.")]


def _last(delivery: Any) -> str | None:
    attempts = delivery["attempts"]
    if not attempts:
        return None
    last = attempts[-1]
    return str(last["error"] or last["status_code"])


def _next(delivery: Any) -> str | None:
    """When it is sent; one whose time has come waits for those before it."""
    moment = delivery["next_attempt_at"]
    return moment if moment is None or parse_moment(moment) > time.time() else "after others"


COLUMNS = (
    Column("NAME", "name"),
    Column("URL", "url"),
    Column("EVENTS", "events"),
    Column("ENABLED", "enabled"),
    Column("WAITING", "delivery_status.waiting", right=True),
    Column("LAST SUCCESS", "delivery_status.last_success_at", spare=True),
    Column("LAST ERROR", "delivery_status.last_error"),
    Column("ID", "id", whole=True),
)
DELIVERIES = (
    Column("CREATED", "created_at", whole=True),
    Column("EVENT", "event"),
    Column("STATUS", "status"),
    Column("ATTEMPTS", lambda row: len(row["attempts"]), right=True, spare=True),
    Column("LAST", _last),
    Column("NEXT", _next, spare=True),
    Column("ID", "id", whole=True),
)


@command(group, "list")
def list_webhooks(session: Session) -> None:
    """List webhooks."""
    data = session.api.get("/webhooks")
    session.out.data(data, lambda: session.out.table(COLUMNS, data["webhooks"], "There is no webhook."))


@command(group, "show")
def show_webhook(session: Session, webhook: WebhookArgument) -> None:
    """Show a webhook."""
    data = session.api.get(_path(session, webhook))
    session.out.data(data, lambda: session.out.details(_told(data["webhook"])))


_OPTIONS = {"url": "--target", "events": "--event", "headers": "--header", "enabled": "--enable"}
"""What the API calls otherwise."""


@command(group, "create", _OPTIONS)
def create_webhook(
    session: Session,
    name_: Annotated[str | None, typer.Argument(metavar="NAME", help="What it is called; or --name.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="What it is called.")] = None,
    target: UrlArgument = None,
    event: EventOption = None,
    header: HeaderOption = None,
    enabled: EnabledOption = None,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Create a webhook. Its secret is shown this once."""
    name = either("--name", name_, name)
    data = session.api.post("/webhooks", body_of(_given(name, target, event, header, enabled), settings, file))
    made = data["webhook"]

    def view() -> None:
        session.out.message(f"{made['name']} is created ({made['id']}).")
        _secret(session, data)

    session.out.data(data, view)


@command(group, "update", _OPTIONS)
def update_webhook(
    session: Session,
    webhook: WebhookArgument,
    name: Annotated[str | None, typer.Option("--name", help="What it is called.")] = None,
    target: UrlArgument = None,
    event: EventOption = None,
    header: HeaderOption = None,
    enabled: EnabledOption = None,
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Change a webhook: only what is given changes."""
    body = body_of(_given(name, target, event, header, enabled), settings, file)
    if not body:
        raise CommandError("Nothing is given that should change", "See proxyfleet webhooks update --help", Status.USAGE)
    data = session.api.patch(_path(session, webhook), body)
    session.out.data(data, lambda: session.out.message(f"{data['webhook']['name']} is changed."))


@command(group, "delete")
def delete_webhook(session: Session, webhook: WebhookArgument, yes: YesOption = False) -> None:
    """Delete a webhook; what waits for it is not sent."""
    found = find(session.api, WEBHOOK, webhook)
    session.confirm(f"Delete the webhook {found['name']}?", yes)
    data = session.api.delete(f"/webhooks/{found['id']}")
    session.out.data(data, lambda: session.out.message(f"{found['name']} is deleted."))


@command(group, "test")
def try_webhook(session: Session, webhook: WebhookArgument) -> None:
    """Send a test event; ends with 1 when it could not be delivered."""
    data = session.api.call("POST", f"{_path(session, webhook)}/test", timeout=60)
    session.out.data(data, lambda: session.out.details(list(data.items())))
    if not data["delivered"]:
        raise typer.Exit(int(Status.FAILED))


@command(group, "rotate-secret")
def rotate_secret(session: Session, webhook: WebhookArgument) -> None:
    """Sign with another secret; both signatures are sent for a day. It is shown this once."""
    data = session.api.post(f"{_path(session, webhook)}/rotate-secret")
    session.out.data(data, lambda: _secret(session, data))


@command(group, "deliveries")
def deliveries(
    session: Session,
    webhook: WebhookArgument,
    status: Annotated[
        Literal["waiting", "delivered", "failed"] | None, typer.Option("--status", help="Only those of this status.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="At most so many.")] = 100,
) -> None:
    """List deliveries, newest first."""
    data = session.api.get(f"{_path(session, webhook)}/deliveries", status=status, limit=limit)
    session.out.data(data, lambda: session.out.table(DELIVERIES, data["deliveries"], "There is no delivery."))


@command(group, "redeliver")
def redeliver(
    session: Session,
    webhook: WebhookArgument,
    delivery: Annotated[str, typer.Argument(metavar="DELIVERY", help="The id of a delivery.")],
) -> None:
    """Send a delivery once more."""
    data = session.api.call("POST", f"{_path(session, webhook)}/deliveries/{quoted(delivery)}/redeliver", timeout=60)
    session.out.data(data, lambda: session.out.message(sent_again(webhook, data["delivery"])))


def sent_again(webhook: str, delivery: dict[str, Any]) -> str:
    """What became of it: attempts of the time before say nothing about this one."""
    if delivery["status"] == "waiting":
        return f"{delivery['id']} is sent again; how it goes: proxyfleet webhooks deliveries {webhook}"
    return f"{delivery['id']} is {delivery['status']}: {_last(delivery)}"


def _given(
    name: str | None, target: str | None, event: list[str] | None, header: list[str] | None, enabled: bool | None
) -> dict[str, Any]:
    headers = dict(_header(each) for each in header) if header else None
    return {"name": name, "url": target, "events": event or None, "headers": headers, "enabled": enabled}


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise CommandError(f"--header {text!r}: must be NAME: VALUE", status=Status.USAGE)
    return name.strip(), value.strip()


def _told(hook: dict[str, Any]) -> list[tuple[str, Any]]:
    """What people want to know of a webhook."""
    sent = hook["delivery_status"] or {}
    headers = [f"{name}: {'(kept secret)' if value is None else value}" for name, value in hook["headers"].items()]
    return [
        ("name", hook["name"]),
        ("id", hook["id"]),
        ("url", hook["url"]),
        ("events", hook["events"]),
        ("headers", headers),
        ("enabled", hook["enabled"]),
        ("disabled because", hook["disabled_reason"]),
        ("waiting", sent.get("waiting")),
        ("last success", sent.get("last_success_at")),
        ("last failure", sent.get("last_failure_at")),
        ("last error", sent.get("last_error")),
        ("old secret until", hook["previous_secret_until"]),
        ("created", hook["created_at"]),
        ("updated", hook["updated_at"]),
    ]


def _path(session: Session, webhook: str) -> str:
    return f"/webhooks/{find_id(session.api, WEBHOOK, webhook)}"


def _secret(session: Session, data: dict[str, Any]) -> None:
    session.out.line(data["webhook"]["secret"])
    session.out.note("The secret is shown this once; whoever receives the events checks signatures with it.")
