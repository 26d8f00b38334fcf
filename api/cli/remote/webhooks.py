"""`proxyfleet webhooks …`"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import typer

from api.cli.client import quoted
from api.cli.commands import Commands, Session, command, key_argument
from api.cli.documents import header_fields
from api.cli.errors import Status
from api.cli.options import WEBHOOK, argument, choice, find_id, number, switch, text, texts
from api.cli.terminal import Column, titled
from config.text.formatting import parse_moment


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
    Column("LAST", _last),
    Column("NEXT", _next, spare=True),
    Column("ID", "id", whole=True),
)


def _headers(hook: Any) -> list[str]:
    return [f"{name}: {'(kept secret)' if value is None else value}" for name, value in hook["headers"].items()]


def _print_secret(session: Session, made: Any) -> None:
    """The secret of what is new; a change has none."""
    if made.get("secret"):
        session.out.line(made["secret"])
        session.out.note("The secret is shown only once; the receiver checks the signatures of events with it.")


group = Commands(
    WEBHOOK,
    "Webhooks and their deliveries.",
    COLUMNS,
    (
        *("name", "id", "url", "events"),
        ("headers", _headers),
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
}


@command(group, "test", _WEBHOOK)
def try_webhook(session: Session, webhook: str) -> None:
    """Send a test event; ends with 1 if it could not be delivered."""
    data = session.api.call("POST", f"{_path(session, webhook)}/test", timeout=60)
    session.out.data(data, lambda: session.out.details(list(data.items())))
    if not data["delivered"]:
        raise typer.Exit(int(Status.FAILED))


@command(group, "rotate-secret", _WEBHOOK)
def rotate_secret(session: Session, webhook: str) -> None:
    """Sign with a new secret; both signatures are sent for a day. The secret is shown only once."""
    data = session.api.post(f"{_path(session, webhook)}/rotate-secret")
    session.out.data(data, lambda: _print_secret(session, data["webhook"]))


@command(group, "deliveries", _DELIVERIES)
def deliveries(session: Session, webhook: str, status: str | None, limit: int) -> None:
    """List deliveries, newest first."""
    data = session.api.get(f"{_path(session, webhook)}/deliveries", status=status, limit=limit)
    session.out.data(data, lambda: session.out.table(DELIVERIES, data["deliveries"], "There is no delivery."))


@command(group, "redeliver", {**_WEBHOOK, "delivery": argument("DELIVERY", "The id of a delivery.")})
def redeliver(session: Session, webhook: str, delivery: str) -> None:
    """Send a delivery again."""
    data = session.api.call("POST", f"{_path(session, webhook)}/deliveries/{quoted(delivery)}/redeliver", timeout=60)
    session.out.done(data, sent_again(webhook, data["delivery"]))


def sent_again(webhook: str, delivery: dict[str, Any]) -> str:
    """The result of `redeliver`: earlier attempts say nothing about this one."""
    if delivery["status"] == "waiting":
        return f"{delivery['id']} is sent again; its result: proxyfleet webhooks deliveries {webhook}"
    return f"{delivery['id']} is {delivery['status']}: {_last(delivery)}"


def _path(session: Session, webhook: str) -> str:
    return f"/webhooks/{find_id(session.api, WEBHOOK, webhook)}"
