"""What needs the attention of an operator: one entry for each cause, with the resource to go to and what mends it.

Problems of proxies, pools, actors and webhooks; lists and upstreams that can't be fetched; webhooks that were disabled
or have given up deliveries; accounts that have used up their quota; certificates that end soon; a full disk or memory;
a first password that was never changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import psutil

from actors.bus.messages.common import LIST_UNREADABLE, POOLS, UPSTREAM_DOWN, UPSTREAMS_UNREACHABLE
from actors.bus.messages.events import QueryDeliveries
from actors.bus.messages.supervision import RuntimeReport
from api.engine.responses import Moment, Reason, ResponseModel
from api.errors import PeerUnavailable
from api.objects.named.list_contents import ListContents
from api.objects.named.list_kind import LISTS
from api.objects.named.pool_kind import POOLS as POOL_OBJECTS
from api.objects.named.shared_objects import SharedObjects
from api.objects.proxies.condition import WEBHOOK_FAILING, Flaw
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.webhooks.webhook_sender import WebhookSender
from config.files.certificates import CertificateError, ends_at
from config.files.paths import DataDir
from config.model.fleet_accounts import FleetAccount
from config.text.formatting import timestamp_text

CERTIFICATE_DAYS = 21
"""A certificate that ends within so many days needs attention."""
FULL_PERCENT = 90.0
"""Of disk or memory."""
GIVEN_UP_WITHIN = 86_400.0
"""Seconds for which a delivery that was given up needs attention."""
LONGEST = 100
"""Entries of a response; the most serious come first."""
SLOW_PERIOD = 30.0
"""Seconds for which what the webhook sender and the disk are asked for is cached."""
WEBHOOKS_MAX = 50
"""Webhooks that the sender is asked about."""

ERROR, WARNING = "error", "warning"
_DAY = 86_400.0

View = dict[str, Any]
PARTS_MAX = 5
"""Parts of a resource that an entry names."""
OF_UPSTREAMS = (UPSTREAMS_UNREACHABLE, UPSTREAM_DOWN)
"""Reasons that have one cause: upstreams that can't be reached. The first is the graver one."""
FIXES = {
    "proxy": {**dict.fromkeys(OF_UPSTREAMS, "test"), "process": "restart", "listener": "restart", "workers": "restart"},
    "pool": {"pool_fetch_failed": "fetch"},
    "list": {"list_fetch_failed": "fetch", LIST_UNREADABLE: "fetch"},
    "webhook": {"webhook_disabled": "enable", WEBHOOK_FAILING: "test"},
    "user": {"first_password": "change_password"},
}
"""What mends an entry, by its kind and its reason; there is not always such an action."""
EMPTY = {
    "list": ("it has no content yet, so rules that deny it deny everything", "content"),
    "pool": ("it has no upstreams yet, so nothing can be reached through it", "upstreams"),
}
"""What follows where nothing was fetched yet, and what stays where something was."""


class AttentionEntry(ResponseModel):
    """Something to look after, once for each cause.

    `kind`, `id` and `name` are those of the resource to go to: of a certificate the proxy that serves it, and no id for
    the API's own. `error` is a sentence in English; `reason` with the fields below is what others are made of.
    """

    severity: Literal["error", "warning"]
    kind: Literal["proxy", "pool", "list", "account", "certificate", "actor", "webhook", "user", "disk", "memory"]
    id: str | None
    name: str | None
    reason: (
        Reason
        | Literal[
            "list_fetch_failed",
            "pool_fetch_failed",
            "quota_reached",
            "webhook_failing",
            "webhook_disabled",
            "deliveries_given_up",
            "certificate_ends",
            "disk_full",
            "memory_full",
            "first_password",
        ]
    )
    error: str
    since: Moment | None
    count: int
    """How many parts of the resource it is about, such as upstreams; 1 for the resource itself."""
    parts: list[str]
    """The names of at most five of these."""
    upstream: str | None
    """The upstream, if it is about one alone."""
    fix: Literal["restart", "test", "fetch", "enable", "change_password"] | None
    """What may mend it: an operation on the resource."""
    detail: str | None
    """What was found, in English: a part of `error`."""
    percent: int | None
    """Of a full disk or memory: how much is in use."""
    ends_at: Moment | None
    """Of a certificate."""
    fetched_at: Moment | None
    """Of a list: when its content was fetched; null without content, when rules that deny it deny everything."""


class AttentionList(ResponseModel):
    """What needs attention, errors first; `entries` are at most 100 of `total`."""

    total: int
    entries: list[AttentionEntry]


@dataclass(frozen=True, slots=True)
class Administrator:
    """The first user."""

    id: str
    username: str


class Attention:
    """Thread-safe."""

    def __init__(
        self,
        webhooks: WebhookSender,
        data: DataDir,
        objects: SharedObjects,
        lists: ListContents,
        certificate: Callable[[], Path | None],
        administrator: Callable[[], Administrator | None],
        at_quota: Callable[[], list[FleetAccount]],
    ) -> None:
        """`certificate` returns the file of the API's own one, `administrator` the first user.

        `at_quota` returns accounts that have used up their quota.
        """
        self._webhooks = webhooks
        self._data = data
        self._objects = objects
        self._lists = lists
        self._certificate = certificate
        self._administrator = administrator
        self._at_quota = at_quota
        self._lock = threading.Lock()
        self._slow: tuple[float, list[View], list[View], list[View]] = (float("-inf"), [], [], [])

    def entries(
        self,
        flaws: Sequence[Flaw],
        settings: bool,
        users: bool,
        objects: bool,
        of_all: bool,
        fleet: RuntimeReport | None,
        proxies: Sequence[StoredProxy],
    ) -> View:
        """`flaws` are those that the caller may see; `settings`, `users`, `objects` (lists, pools, accounts) and
        `of_all` are what else they may."""
        found = [*self._of_flaws(flaws, fleet)]
        found += _of_certificates(fleet, proxies)
        if of_all:
            of_webhooks, of_machine, of_accounts = self._slowly()
            found += [*of_machine, *(of_webhooks if settings else ())]
            found += self._of_first_password() if users else ()
            found += [*self._of_sources(), *of_accounts] if objects else ()
        found.sort(key=lambda each: (each["severity"] != ERROR, each["kind"], each["name"] or ""))
        return {"total": len(found), "entries": found[:LONGEST]}

    def _of_flaws(self, flaws: Sequence[Flaw], fleet: RuntimeReport | None) -> Iterator[View]:
        """One entry for each cause: that two upstreams of a proxy are down, and so all of them, is one."""
        pools = {each.record.name: each.record.id for each in self._objects.all(POOL_OBJECTS)}
        about = [(_cause(flaw, pools), flaw) for flaw in flaws]
        about.sort(key=lambda each: tuple(str(part or "") for part in each[0]))
        for cause, group in groupby(about, key=lambda each: each[0]):
            yield _of_cause(cause, [flaw for _, flaw in group], fleet)

    def _of_sources(self) -> Iterator[View]:
        for kind in (LISTS, POOL_OBJECTS):
            for each in self._objects.all(kind):
                if each.record.source is not None:
                    yield from _of_source(kind.name, each.record, self._lists.status(each.record))

    def _of_accounts(self) -> Iterator[View]:
        found = self._at_quota()
        if found:
            names = sorted(each.username for each in found)
            one = found[0] if len(found) == 1 else None
            identifier, name = (None, None) if one is None else (one.id, one.username)
            text = f"{', '.join(names[:PARTS_MAX])}{', …' if len(found) > PARTS_MAX else ''}: the quota is used up"
            parts: View = {"count": len(found), "parts": names[:PARTS_MAX]}
            yield _entry(WARNING, "account", identifier, name, "quota_reached", text, **parts)

    def _slowly(self) -> tuple[list[View], list[View], list[View]]:
        with self._lock:
            if time.monotonic() - self._slow[0] >= SLOW_PERIOD:
                found = list(self._of_webhooks()), list(self._of_machine()), list(self._of_accounts())
                self._slow = (time.monotonic(), *found)
            return self._slow[1:]

    def _of_webhooks(self) -> Iterator[View]:
        for record in self._webhooks.all()[:WEBHOOKS_MAX]:
            if record.disabled_reason is not None:
                why = record.disabled_reason
                yield _entry(WARNING, "webhook", record.id, record.name, "webhook_disabled", why, detail=why)
            try:
                failed = self._webhooks.deliveries_here(QueryDeliveries(record.id, "failed", 1, 0)).deliveries
            except PeerUnavailable:
                return  # which is a problem of the sender, and an entry already
            if failed and failed[0].created_at > time.time() - GIVEN_UP_WITHIN:
                since = failed[0].created_at
                text = f"deliveries were given up, the last one of {failed[0].event.type}"
                about: View = {"since": since, "detail": failed[0].event.type}
                yield _entry(WARNING, "webhook", record.id, record.name, "deliveries_given_up", text, **about)

    def _of_machine(self) -> Iterator[View]:
        for name, measure in (("disk", self._disk_percent), ("memory", _memory_percent)):
            try:
                percent = measure()
            except OSError:
                continue  # the health report says that it is unknown
            if percent >= FULL_PERCENT:
                text = f"{percent:.0f} % of the {name} is in use"
                yield _entry(WARNING, name, None, None, f"{name}_full", text, percent=round(percent))
        file = self._certificate()
        try:
            ends = None if file is None else ends_at(file)
        except CertificateError:
            return  # the problem of the TLS terminator says so
        if ends is not None and _ends_soon(ends):
            yield _of_certificate(None, "server.tls.cert_file", ends)

    def _of_first_password(self) -> list[View]:
        if not self._data.initial_password.exists():
            return []
        text = f"the first password of the administrator is still in the file {self._data.initial_password.name}"
        user = self._administrator()
        identifier, name = (None, None) if user is None else (user.id, user.username)
        return [_entry(WARNING, "user", identifier, name, "first_password", text)]

    def _disk_percent(self) -> float:
        return float(psutil.disk_usage(str(self._data.path)).percent)


def _memory_percent() -> float:
    return float(psutil.virtual_memory().percent)


def is_of_pool(flaw: Flaw) -> bool:
    """Whether the checks of pools report it of a pool, and not of themselves."""
    return flaw.id == POOLS and bool(flaw.problem.subject)


def _cause(flaw: Flaw, pools: dict[str, str]) -> tuple[str, str | None, str, str]:
    """Kind, id and name of what an entry is about, and the reason that stands for all of the same cause."""
    reason = OF_UPSTREAMS[0] if flaw.problem.reason in OF_UPSTREAMS else flaw.problem.reason
    if is_of_pool(flaw):
        pool = flaw.problem.subject.partition("/")[0]
        return "pool", pools.get(pool), pool, reason
    return flaw.resource, flaw.id, flaw.name, reason


def _of_cause(cause: tuple[str, str | None, str, str], flaws: list[Flaw], fleet: RuntimeReport | None) -> View:
    kind, identifier, name, _ = cause
    runtime = None if fleet is None or kind != "proxy" else fleet.proxies.get(identifier or "")
    failed = not all(each.problem.serves for each in flaws) or (runtime is not None and runtime.state == "failed")
    problems = sorted((each.problem for each in flaws), key=lambda each: (each.serves, each.since))
    subjects = (each.subject.partition("/")[2] if kind == "pool" else each.subject for each in problems)
    parts = sorted(set(filter(None, subjects)))
    reason = (
        UPSTREAMS_UNREACHABLE if any(each.reason == UPSTREAMS_UNREACHABLE for each in problems) else problems[0].reason
    )
    detail = problems[0].detail
    named = ", ".join(parts[:PARTS_MAX]) + (", …" if len(parts) > PARTS_MAX else "")
    text = f"{len(parts)} of them, {named}: {detail}" if len(parts) > 1 else detail
    since = min(each.since for each in problems)
    about: View = {"since": since, "detail": detail, "count": max(1, len(parts)), "parts": parts[:PARTS_MAX]}
    return _entry(ERROR if failed else WARNING, kind, identifier, name, reason, text, **about)


def _of_source(kind: str, record: Any, status: View) -> Iterator[View]:
    """What has a source and can't be fetched."""
    detail, fetched = status["last_error"], status["fetched_at"]
    if detail is None:
        return
    nothing, content = EMPTY[kind]
    follows = nothing if fetched is None else f"its {content} of {fetched} stay{'' if kind == 'pool' else 's'}"
    text = f"it can't be fetched: {detail}; {follows}"
    about = (ERROR if fetched is None else WARNING, kind, record.id, record.name, f"{kind}_fetch_failed")
    yield _entry(*about, text, detail=detail, fetched_at=fetched)


def _of_certificates(fleet: RuntimeReport | None, proxies: Sequence[StoredProxy]) -> Iterator[View]:
    for each in proxies:
        runtime = None if fleet is None else fleet.proxies.get(each.record.id)
        if runtime is not None and runtime.certificate_ends and _ends_soon(runtime.certificate_ends):
            yield _of_certificate(each.record.id, each.record.name, runtime.certificate_ends)


def _of_certificate(identifier: str | None, name: str, ends: float) -> View:
    over = ends <= time.time()
    text = f"the certificate {'ended' if over else 'ends'} at {timestamp_text(ends)}"
    severity = ERROR if over else WARNING
    return _entry(severity, "certificate", identifier, name, "certificate_ends", text, ends_at=timestamp_text(ends))


def _ends_soon(ends: float) -> bool:
    return ends - time.time() < CERTIFICATE_DAYS * _DAY


def _entry(
    severity: str,
    kind: str,
    identifier: str | None,
    name: str | None,
    reason: str,
    text: str,
    since: float = 0.0,
    count: int = 1,
    parts: Iterable[str] = (),
    **parameters: Any,
) -> View:
    named = list(parts)
    return {
        "severity": severity,
        "kind": kind,
        "id": identifier,
        "name": name,
        "reason": reason,
        "error": text,
        "since": timestamp_text(since) if since else None,
        "count": count,
        "parts": named,
        "upstream": named[0] if len(named) == 1 and reason in OF_UPSTREAMS else None,
        "fix": FIXES.get(kind, {}).get(reason),
        "detail": None,
        "percent": None,
        "ends_at": None,
        "fetched_at": None,
        **parameters,
    }
