"""Planning of webhooks. Their names need not be unique: where several have the same, the URL distinguishes them."""

from __future__ import annotations

import secrets as random
from collections import Counter
from typing import Any

from api.import_export.document import WebhookEntry
from api.import_export.entries import webhook_entry
from api.import_export.plan import ImportRequest, PlanContext, Problems, Step
from api.import_export.sealed_secrets import WebhookSecrets
from api.import_export.state import State, StoredRecord
from api.services.webhooks import COLLECTION, MAX_PREVIOUS_SECRETS, MAX_WEBHOOKS, PREVIOUS_SECRET_FOR
from api.store import StoreWriteError
from config.files.secret_box import SecretBox, SecretBoxError
from config.model.webhooks import (
    SECRET_PURPOSE,
    PreviousSecret,
    WebhookRecord,
    kept_seal,
    new_secret,
    sealed_headers,
)

Stored = StoredRecord[WebhookRecord]


def plan_webhooks(
    state: State, request: ImportRequest, context: PlanContext, problems: Problems
) -> list[Step[WebhookRecord]]:
    """A step for each entry, in their order; then, to prune, one for each webhook that has none."""
    entries = request.document.webhooks
    if entries is None:
        return []
    _refuse_twins(entries, problems)
    known = _matched(state.webhooks, entries)
    steps = []
    for index, entry in enumerate(entries):
        step = _plan_one(known.get(index), entry, f"webhooks[{index}]", request, context, problems)
        if step is not None:
            steps.append(step)
    matched = {each.record.id for each in known.values()}
    left = [each for each in state.webhooks if each.record.id not in matched]
    if request.prune:
        steps += [_step("webhooks", each, None) for each in left]
    if len(entries) + (0 if request.prune else len(left)) > MAX_WEBHOOKS:
        problems.add("webhooks", f"there may be {MAX_WEBHOOKS} at most")
    return steps


def _refuse_twins(entries: list[WebhookEntry], problems: Problems) -> None:
    seen: dict[tuple[str, str], int] = {}
    for index, entry in enumerate(entries):
        first = seen.setdefault((entry.name, entry.url), index)
        if first != index:
            problems.add(f"webhooks[{index}]", f"has the name and the url of webhooks[{first}]")


def _matched(stored: list[Stored], entries: list[WebhookEntry]) -> dict[int, Stored]:
    """The stored webhook of each entry, by index: that of its name and URL, else the only one of its name."""
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


def _step(
    path: str, stored: Stored | None, after: WebhookRecord | None, secret: str | None = None
) -> Step[WebhookRecord]:
    return Step("webhook", COLLECTION, path, stored, after, webhook_entry, secret)


def _plan_one(
    stored: Stored | None,
    entry: WebhookEntry,
    path: str,
    request: ImportRequest,
    context: PlanContext,
    problems: Problems,
) -> Step[WebhookRecord] | None:
    before = None if stored is None else stored.record
    sealed = next((each for each in request.secrets.webhooks if (each.name, each.url) == (entry.name, entry.url)), None)
    if before is None and entry.events is None:
        problems.add(f"{path}.events", "is required for a new webhook")
        return None
    try:
        headers = _headers(before, entry, sealed, context.seal, path, problems)
        secret, made_up = _secret(before, entry, sealed, context.seal)
    except SecretBoxError as error:
        raise StoreWriteError(str(error)) from error
    fresh = before or WebhookRecord(
        id="wh_" + random.token_hex(8),
        name=entry.name,
        url=entry.url,
        events=[],
        headers={},
        enabled=True,
        secret_sealed=secret,
        created_at=context.now,
        updated_at=context.now,
    )
    return _step(path, stored, _changed(fresh, entry, headers, secret, context.now), made_up)


def _changed(
    before: WebhookRecord, entry: WebhookEntry, headers: dict[str, str], secret: str, now: float
) -> WebhookRecord:
    changed: dict[str, Any] = {"url": entry.url, "headers": headers, "secret_sealed": secret, "updated_at": now}
    if entry.events is not None:
        changed["events"] = entry.events
    if entry.enabled is not None and entry.enabled != before.enabled:
        changed |= {"enabled": entry.enabled, "disabled_reason": None}
    return with_previous_secret(before.model_copy(update=changed), before, now)


def with_previous_secret(after: WebhookRecord, before: WebhookRecord, now: float) -> WebhookRecord:
    """`after` with the secrets that are valid at present; that of `before` remains so for a while, if it differs."""
    kept = [each for each in before.previous_secrets if each.until > now and each.sealed != after.secret_sealed]
    if after.secret_sealed == before.secret_sealed:
        return after.model_copy(update={"previous_secrets": before.previous_secrets})
    older = PreviousSecret(sealed=before.secret_sealed, until=now + PREVIOUS_SECRET_FOR)
    return after.model_copy(update={"previous_secrets": [older, *kept][:MAX_PREVIOUS_SECRETS]})


def _headers(
    before: WebhookRecord | None,
    entry: WebhookEntry,
    sealed: WebhookSecrets | None,
    seal: SecretBox,
    path: str,
    problems: Problems,
) -> dict[str, str]:
    """Sealed, as they are to be stored. Raises `SecretBoxError`."""
    known = {} if before is None else before.headers
    if entry.headers is None:
        return known
    sent = {} if sealed is None else sealed.headers
    given = {name: value or sent.get(name) for name, value in entry.headers.items()}
    headers, missing = sealed_headers(given, known, seal)
    for name in missing:
        problems.add(f"{path}.headers.{name}", "has no value, and none is known here")
    return headers


def _secret(
    before: WebhookRecord | None, entry: WebhookEntry, sealed: WebhookSecrets | None, seal: SecretBox
) -> tuple[str, str | None]:
    """Sealed, as it is to be stored; and in the clear if it was made up. Raises `SecretBoxError`."""
    given = entry.secret or (sealed.secret if sealed else None)
    if given is not None:
        return kept_seal(before.secret_sealed if before else None, given, seal, SECRET_PURPOSE), None
    if before is not None:
        return before.secret_sealed, None
    fresh = new_secret()
    return seal.seal(fresh, SECRET_PURPOSE), fresh
