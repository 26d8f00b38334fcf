"""`proxyfleet webhooks …`"""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

import typer

from api.cli.client import quoted
from api.cli.commands import Session, YesOption, add_group, command, confirm, either
from api.cli.errors import Status
from api.cli.lookup import WEBHOOK, find, find_id
from api.cli.request_body import FileOption, body_of, header_fields, require_changes, set_option
from api.cli.terminal.completion import webhook_names
from api.cli.terminal.output import Column
from config.text.formatting import parse_moment

group = typer.Typer(help="Webhooks and their deliveries.", no_args_is_help=True)

WebhookArgument = Annotated[
    str, typer.Argument(metavar="WEBHOOK", help="Its name or id.", autocompletion=webhook_names)
]
FIELDS: dict[str, Any] = {
    "name": Annotated[str | None, typer.Option("--name", help="The name of the webhook.")],
    "url": Annotated[str | None, typer.Option("--target", help="The URL that receives the events.")],
    "events": Annotated[
        list[str] | None,
        typer.Option("--event", help="An event, a group (`proxy.*`) or `*`; may be given several times."),
    ],
    "headers": Annotated[
        list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="May be given several times.")
    ],
    "enabled": Annotated[
        bool | None, typer.Option("--enable/--disable", help="Send events or not.", show_default=False)
    ],
}
"""Options of `create` and `update` by the field of the API that they set."""
SetOption = Annotated[list[str] | None, set_option('events=["proxy.*"]', "headers.X-Team=network")]


def add_commands(app: typer.Typer) -> None:
    """Add the group to `app`."""
    add_group(app, "webhooks", group)


def _last(delivery: Any) -> str | None:
    attempts = delivery["attempts"]
    if not attempts:
        return None
    last = attempts[-1]
    return str(last["error"] or last["status_code"])


def _next(delivery: Any) -> str | None:
    """The time of the next attempt; a delivery that is due waits for earlier ones."""
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
    session.out.data(data, lambda: session.out.details(_details(data["webhook"])))


@command(group, "create", fields=FIELDS)
def create_webhook(
    session: Session,
    name_: Annotated[str | None, typer.Argument(metavar="NAME", help="The name of the webhook; or --name.")] = None,
    *,
    fields: dict[str, Any],
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Create a webhook. Its secret is shown only once."""
    fields["name"] = either("--name", name_, fields["name"])
    data = session.api.post("/webhooks", body_of(_parsed(fields), settings, file))
    made = data["webhook"]

    def view() -> None:
        session.out.message(f"{made['name']} is created ({made['id']}).")
        _print_secret(session, data)

    session.out.data(data, view)


@command(group, "update", fields=FIELDS)
def update_webhook(
    session: Session,
    webhook: WebhookArgument,
    fields: dict[str, Any],
    settings: SetOption = None,
    file: FileOption = None,
) -> None:
    """Change a webhook: only given fields change."""
    body = body_of(_parsed(fields), settings, file)
    require_changes(body, "webhooks")
    data = session.api.patch(_path(session, webhook), body)
    session.out.done(data, f"{data['webhook']['name']} is changed.")


@command(group, "delete")
def delete_webhook(session: Session, webhook: WebhookArgument, yes: YesOption = False) -> None:
    """Delete a webhook; its waiting deliveries are not sent."""
    found = find(session.api, WEBHOOK, webhook)
    confirm(f"Delete the webhook {found['name']}?", yes)
    data = session.api.delete(f"/webhooks/{found['id']}")
    session.out.done(data, f"{found['name']} is deleted.")


@command(group, "test")
def try_webhook(session: Session, webhook: WebhookArgument) -> None:
    """Send a test event; ends with 1 if it could not be delivered."""
    data = session.api.call("POST", f"{_path(session, webhook)}/test", timeout=60)
    session.out.data(data, lambda: session.out.details(list(data.items())))
    if not data["delivered"]:
        raise typer.Exit(int(Status.FAILED))


@command(group, "rotate-secret")
def rotate_secret(session: Session, webhook: WebhookArgument) -> None:
    """Sign with a new secret; both signatures are sent for a day. The secret is shown only once."""
    data = session.api.post(f"{_path(session, webhook)}/rotate-secret")
    session.out.data(data, lambda: _print_secret(session, data))


@command(group, "deliveries")
def deliveries(
    session: Session,
    webhook: WebhookArgument,
    status: Annotated[
        Literal["waiting", "delivered", "failed"] | None, typer.Option("--status", help="Only those of this status.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1000, help="The number of deliveries at most.")] = 100,
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
    """Send a delivery again."""
    data = session.api.call("POST", f"{_path(session, webhook)}/deliveries/{quoted(delivery)}/redeliver", timeout=60)
    session.out.done(data, sent_again(webhook, data["delivery"]))


def sent_again(webhook: str, delivery: dict[str, Any]) -> str:
    """The result of `redeliver`: earlier attempts say nothing about this one."""
    if delivery["status"] == "waiting":
        return f"{delivery['id']} is sent again; its result: proxyfleet webhooks deliveries {webhook}"
    return f"{delivery['id']} is {delivery['status']}: {_last(delivery)}"


def _parsed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with headers as an object. Raises `CommandError`."""
    return {**fields, "headers": header_fields("--header", fields["headers"])}


def _details(hook: dict[str, Any]) -> list[tuple[str, Any]]:
    """Names and values of `webhooks show`."""
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


def _print_secret(session: Session, data: dict[str, Any]) -> None:
    session.out.line(data["webhook"]["secret"])
    session.out.note("The secret is shown only once; the receiver checks the signatures of events with it.")
