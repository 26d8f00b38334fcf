"""The declaration of webhooks: as a document has them, as callers see them, and what becomes of one when it is
changed.

Their names need not be unique: where several have the same, the URL distinguishes them in a document.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, StrictBool

from actors.bus.messages.events import WebhookStatus
from api.audit.audit_context import on_behalf_of
from api.engine.kind import ObjectKind, Resource, Texts
from api.engine.objects import Hooks, Objects, Proposal, one_at_a_time
from api.engine.records import Stored, moment, view_of
from api.engine.responses import OF_INSTALLATION, Moment, ResponseModel, all_of, one_of, shows
from api.engine.transfer import PlannedRecord, Planning, SecretValue, Transfer
from api.errors import MissingPermission, NotFound
from api.security.caller import Caller
from api.store import StoreWriteError
from config.files.secret_box import SecretBox, sealing_as
from config.model.choices import MASK
from config.model.declaration import update
from config.model.fields import NULLABLE, Body, Name
from config.model.subscriptions import is_about_people
from config.model.webhooks import (
    HEADER_PURPOSE,
    READ_ONLY_FIELDS,
    SECRET_PURPOSE,
    Events,
    PreviousSecret,
    Secret,
    SparseHeaders,
    Url,
    WebhookCreate,
    WebhookRecord,
    WebhookUpdate,
    masked_url,
    new_secret,
    opened_headers,
    sealed_headers,
)

PREVIOUS_SECRET_FOR = 24 * 3600.0
"""Seconds that the older secret is signed with beside the new one."""
MAX_PREVIOUS_SECRETS = 3


def new_webhook(body: WebhookCreate, now: float, seal: SecretBox) -> WebhookRecord:
    """The webhook that `body` describes, with a new secret. Raises `SecretBoxError`."""
    blank = _blank(body.name, body.url, now)
    changed = {"secret_sealed": seal.seal(new_secret(), SECRET_PURPOSE)}
    return change_webhook(blank.model_copy(update=changed), body, now, seal)


def _blank(name: str, url: str, now: float) -> WebhookRecord:
    return WebhookRecord(
        id="wh_" + secrets.token_hex(8),
        name=name,
        url=url,
        events=[],
        headers={},
        enabled=True,
        secret_sealed="",
        created_at=now,
        updated_at=now,
    )


def change_webhook(before: WebhookRecord, body: WebhookUpdate, now: float, seal: SecretBox) -> WebhookRecord:
    """`before` with the changes of `body`. Enabling resumes waiting deliveries. Raises `SecretBoxError`."""
    changed: dict[str, Any] = {**update(before, body), "updated_at": now}
    if body.headers is not None:
        changed["headers"] = sealed_headers(body.headers, before.headers, seal)[0]
    if "enabled" in changed:
        changed["disabled_reason"] = None
    return before.model_copy(update=changed)


def rotated(before: WebhookRecord, seal: SecretBox) -> WebhookRecord:
    """With a new secret; for a day deliveries are signed with the older one, too. Raises `SecretBoxError`."""
    now = time.time()
    changed = {"secret_sealed": seal.seal(new_secret(), SECRET_PURPOSE), "updated_at": now}
    return with_previous_secret(before.model_copy(update=changed), before, now)


def with_previous_secret(after: WebhookRecord, before: WebhookRecord, now: float) -> WebhookRecord:
    """`after` with the secrets that are valid at present; that of `before` remains so for a while, if it differs."""
    kept = [each for each in before.previous_secrets if each.until > now and each.sealed != after.secret_sealed]
    if after.secret_sealed == before.secret_sealed:
        return after.model_copy(update={"previous_secrets": before.previous_secrets})
    older = PreviousSecret(sealed=before.secret_sealed, until=now + PREVIOUS_SECRET_FOR)
    return after.model_copy(update={"previous_secrets": [older, *kept][:MAX_PREVIOUS_SECRETS]})


def disable(
    webhooks: Objects[WebhookRecord],
    publish: Callable[[str, dict[str, Any]], None],
    webhook_id: str,
    reason: str,
    before: float,
) -> None:
    """Disable a webhook for the sender, unless it is deleted or disabled, or was changed after `before`."""
    disabled: list[WebhookRecord] = []

    def change(record: WebhookRecord) -> WebhookRecord:
        disabled.clear()
        if not record.enabled or record.updated_at > before:
            return record
        update = {"enabled": False, "disabled_reason": reason, "updated_at": time.time()}
        disabled.append(record.model_copy(update=update))
        return disabled[0]

    with on_behalf_of("system", "disableWebhook"):
        try:
            webhooks.change(webhook_id, change, None)
        except NotFound:
            return
    for each in disabled:
        publish("webhook.disabled", {"webhook_id": webhook_id, "name": each.name, "reason": reason})


class WebhookEntry(Body):
    """A webhook. A header whose value is null (or empty, for formats that have no null) keeps the value that it has."""

    name: Name
    url: Url
    events: Events | None = None
    headers: SparseHeaders | None = Field(None, repr=False)
    enabled: StrictBool | None = None
    secret: Annotated[Secret | None, NULLABLE] = Field(None, repr=False)


@shows(WebhookRecord, but=(*OF_INSTALLATION, "disabled_reason"))
class ExportedWebhook(ResponseModel):
    """A webhook. The values of its headers are null."""

    headers: dict[str, str | None]
    secret: None


def _entry(record: WebhookRecord) -> dict[str, Any]:
    return {
        "name": record.name,
        "url": record.url,
        "events": list(record.events),
        "headers": {name: SecretValue(value) for name, value in record.headers.items()},
        "enabled": record.enabled,
        "secret": SecretValue(record.secret_sealed),
    }


def _match(
    stored: Sequence[Stored[WebhookRecord]], entries: Sequence[Any], refuse: Callable[[str, str], None]
) -> dict[int, Stored[WebhookRecord]]:
    """The webhook of an entry is that of its name and URL, else the only one of its name."""
    _refuse_twins(entries, refuse)
    here, there = Counter(each.record.name for each in stored), Counter(entry.name for entry in entries)
    exact = {(each.record.name, each.record.url): each for each in stored}
    by_name = {each.record.name: each for each in stored}
    found = {}
    for index, entry in enumerate(entries):
        only = here[entry.name] == there[entry.name] == 1
        match = by_name.get(entry.name) if only else exact.get((entry.name, entry.url))
        if match is not None:
            found[index] = match
    return found


def _refuse_twins(entries: Sequence[Any], refuse: Callable[[str, str], None]) -> None:
    seen: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(entries):
        first = seen.setdefault((entry.name, entry.url), index)
        if first != index:
            refuse(f"webhooks[{index}]", f"has the name and the url of webhooks[{first}]")


def _wanted(stored: Stored[WebhookRecord] | None, entry: Any, planning: Planning) -> PlannedRecord | None:
    before, seal = None if stored is None else stored.record, planning.seal
    known = (each for each in planning.sealed.webhooks if (each.name, each.url) == (entry.name, entry.url))
    sealed = next(known, None)
    if before is None and entry.events is None:
        planning.refuse("events", "is required for a new webhook")
        return None
    fresh = before or _blank(entry.name, entry.url, planning.now)
    secret, made_up = _secret(before, entry, sealed, seal)
    changed: dict[str, Any] = {
        **update(fresh, entry),
        "headers": _headers(before, entry, sealed, planning),
        "secret_sealed": secret,
        "updated_at": planning.now,
    }
    if changed.get("enabled", fresh.enabled) != fresh.enabled:
        changed["disabled_reason"] = None
    after = fresh.model_copy(update=changed)
    return PlannedRecord(with_previous_secret(after, before or after, planning.now), made_up)


def _headers(before: WebhookRecord | None, entry: WebhookEntry, sealed: Any, planning: Planning) -> dict[str, str]:
    """Sealed, as they are to be stored. Raises `SecretBoxError`."""
    known = {} if before is None else before.headers
    if entry.headers is None:
        return known
    sent = {} if sealed is None else sealed.headers
    given = {name: value or sent.get(name) for name, value in entry.headers.items()}
    headers, missing = sealed_headers(given, known, planning.seal)
    for name in missing:
        planning.refuse(f"headers.{name}", "has no value, and none is known here")
    return headers


def _secret(before: WebhookRecord | None, entry: WebhookEntry, sealed: Any, seal: SecretBox) -> tuple[str, str | None]:
    """Sealed, as it is to be stored; and in the clear if it was made up. Raises `SecretBoxError`."""
    given = entry.secret or (sealed.secret if sealed else None)
    if given is not None:
        return seal.reseal(before.secret_sealed if before else None, given, SECRET_PURPOSE), None
    if before is not None:
        return before.secret_sealed, None
    fresh = new_secret()
    return seal.seal(fresh, SECRET_PURPOSE), fresh


def _openable(record: WebhookRecord, seal: SecretBox) -> tuple[WebhookRecord, list[str]]:
    """With a new signing secret in place of a lost one, which a rotation shows."""
    headers = {name: value for name, value in record.headers.items() if seal.opens(value, HEADER_PURPOSE)}
    previous = [each for each in record.previous_secrets if seal.opens(each.sealed, SECRET_PURPOSE)]
    secret, fields = record.secret_sealed, []
    if not seal.opens(secret, SECRET_PURPOSE):
        fields.append("secret")
        secret = seal.seal(new_secret(), SECRET_PURPOSE)
    fields += [f"headers.{name}" for name in record.headers if name not in headers]
    changed = {"headers": headers, "previous_secrets": previous, "secret_sealed": secret}
    return record.model_copy(update=changed), fields


TRANSFER = Transfer(
    model=WebhookEntry,
    exported=ExportedWebhook,
    entry=_entry,
    key=lambda each: (each.name, each.url),
    match=_match,
    wanted=_wanted,
    blank={"headers": {}, "enabled": True, "secret": None},
    usual=lambda _entry, _rules: {"url": "https://blank.example/", "headers": {}, "enabled": True, "secret": None},
    required=("events",),
    restored=lambda before, after, now: with_previous_secret(after.model_copy(update={"updated_at": now}), before, now),
    openable=_openable,
)


MAX_WEBHOOKS = 1_000


class DeliveryStatusView(ResponseModel):
    """The state of the deliveries of a webhook."""

    waiting: int
    last_success_at: Moment | None
    last_failure_at: Moment | None
    last_error: str | None


@shows(WebhookRecord)
class WebhookView(ResponseModel):
    """A webhook. `delivery_status` is null while the sender doesn't reply, and in the response to a create."""

    headers: dict[str, str]
    previous_secret_until: Moment | None
    delivery_status: DeliveryStatusView | None


class SecretWebhookView(WebhookView):
    """A webhook with its secret, which is only in this response."""

    secret: str


class NewWebhook(ResponseModel):
    """A webhook with its secret."""

    webhook: SecretWebhookView


WEBHOOKS = ObjectKind(
    name="webhook",
    collection="webhooks",
    transfer=TRANSFER,
    most=MAX_WEBHOOKS,
    model=WebhookRecord,
    create=WebhookCreate,
    update=WebhookUpdate,
    read_only=READ_ONLY_FIELDS,
    new=new_webhook,
    change=change_webhook,
    unique_names=False,
    resource=Resource(
        texts=Texts(
            list="Returns all webhooks with their subscriptions and the state of their deliveries. Secrets are not "
            "returned.",
            create="Subscribes an address to events. The signing secret is in this response only.",
            get="Returns a webhook with its subscriptions. The signing secret is not returned.",
            update="Changes the given fields and keeps all others. Setting `enabled` to true resumes the deliveries "
            "of a webhook that was disabled.",
            delete="Deletes the webhook and the deliveries that wait for it. No further request is sent to its "
            "address.",
        ),
        one=one_of("webhook", WebhookView),
        page=all_of("Webhooks", "webhooks", WebhookView),
        created=NewWebhook,
        read="settings.read",
        write="settings.write",
    ),
)


# --- views ---------------------------------------------------------------------------------------------------------


def hooks_of_webhooks(statuses: Callable[[], Mapping[str, WebhookStatus]], seal: SecretBox) -> Hooks[WebhookRecord]:
    """`statuses` are those of deliveries, by id."""

    def permit(caller: Caller, proposal: Proposal[WebhookRecord]) -> None:
        """Refuse a subscription to events about people to callers who may not read about them."""
        after = proposal.after
        if after is not None and is_about_people(after.events) and not caller.may("users.read"):
            raise MissingPermission("users.read", by_key=caller.key is not None)

    def views(caller: Caller, stored: Sequence[Stored[WebhookRecord]], _whole: bool) -> list[dict[str, Any]]:
        known = statuses() if stored else {}
        return [view_of_webhook(caller, each.record, known.get(each.record.id), seal) for each in stored]

    return Hooks(lock=one_at_a_time(), permit=permit, views=views)


def view_of_webhook(
    caller: Caller, record: WebhookRecord, status: WebhookStatus | None, seal: SecretBox
) -> dict[str, Any]:
    """`status` None: it is not known. Raises `StoreWriteError`."""
    clear = caller.may("settings.write")
    with sealing_as(StoreWriteError):
        headers = opened_headers(record.headers, seal)
    return {
        **view_of(record),
        "url": record.url if clear else masked_url(record.url),
        "headers": headers if clear else dict.fromkeys(headers, MASK),
        "previous_secret_until": moment(max((each.until for each in record.previous_secrets), default=None)),
        "delivery_status": None if status is None else _status(status),
    }


def _status(status: WebhookStatus) -> dict[str, Any]:
    return {
        "waiting": status.waiting,
        "last_success_at": moment(status.last_success_at),
        "last_failure_at": moment(status.last_failure_at),
        "last_error": status.last_error,
    }
