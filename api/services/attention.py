"""What needs the attention of an operator, each entry with the resource to go to.

Problems of proxies, actors and webhooks; webhooks that were disabled or have given up deliveries; certificates that end
soon; a full disk or memory; a first password that was never changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psutil

from actors.bus.messages.supervision import RuntimeReport
from actors.bus.messages.webhooks import QueryDeliveries
from api.errors import PeerUnavailable
from api.services.condition import Flaw
from api.services.proxy_cache import StoredProxy
from api.services.webhooks import Webhooks
from config.files.certificates import CertificateError, ends_at
from config.files.paths import DataDir
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


class Attention:
    """Thread-safe."""

    def __init__(
        self,
        webhooks: Webhooks,
        data: DataDir,
        certificate: Callable[[], Path | None],
        administrator: Callable[[], str | None],
    ) -> None:
        """`certificate` returns the file of the API's own one, `administrator` the id of the first user."""
        self._webhooks = webhooks
        self._data = data
        self._certificate = certificate
        self._administrator = administrator
        self._lock = threading.Lock()
        self._slow: tuple[float, list[View], list[View]] = (float("-inf"), [], [])

    def entries(
        self,
        flaws: Sequence[Flaw],
        settings: bool,
        users: bool,
        of_all: bool,
        fleet: RuntimeReport | None,
        proxies: Sequence[StoredProxy],
    ) -> View:
        """`flaws` are those that the caller may see; `settings`, `users` and `of_all` are what else they may."""
        found = [_of_flaw(each, fleet) for each in flaws]
        found += _of_certificates(fleet, proxies)
        if of_all:
            of_webhooks, of_machine = self._slowly()
            found += [*of_machine, *(of_webhooks if settings else ())]
            found += self._of_first_password() if users else ()
        found.sort(key=lambda each: (each["severity"] != ERROR, each["kind"], each["name"] or ""))
        return {"total": len(found), "entries": found[:LONGEST]}

    def _slowly(self) -> tuple[list[View], list[View]]:
        with self._lock:
            if time.monotonic() - self._slow[0] >= SLOW_PERIOD:
                self._slow = (time.monotonic(), list(self._of_webhooks()), list(self._of_machine()))
            return self._slow[1:]

    def _of_webhooks(self) -> Iterator[View]:
        for record in [each.record for each in self._webhooks.all()][:WEBHOOKS_MAX]:
            if record.disabled_reason is not None:
                yield _entry(WARNING, "webhook", record.id, record.name, "webhook_disabled", record.disabled_reason)
            try:
                failed = self._webhooks.deliveries(QueryDeliveries(record.id, "failed", 1, 0)).deliveries
            except PeerUnavailable:
                return  # which is a problem of the sender, and an entry already
            if failed and failed[0].created_at > time.time() - GIVEN_UP_WITHIN:
                since = failed[0].created_at
                text = f"deliveries were given up, the last one of {failed[0].event.type}"
                yield _entry(WARNING, "webhook", record.id, record.name, "deliveries_given_up", text, since)

    def _of_machine(self) -> Iterator[View]:
        for name, measure in (("disk", self._disk_percent), ("memory", _memory_percent)):
            try:
                percent = measure()
            except OSError:
                continue  # the health report says that it is unknown
            if percent >= FULL_PERCENT:
                yield _entry(WARNING, name, None, None, f"{name}_full", f"{percent:.0f} % of the {name} is in use")
        file = self._certificate()
        try:
            ends = None if file is None else ends_at(file)
        except CertificateError:
            return  # the problem of the TLS terminator says so
        if ends is not None and _ends_soon(ends):
            yield _of_certificate("settings", "server.tls.cert_file", None, ends)

    def _of_first_password(self) -> list[View]:
        if not self._data.initial_password.exists():
            return []
        text = f"the first password of the administrator is still in the file {self._data.initial_password.name}"
        return [_entry(WARNING, "user", self._administrator(), None, "first_password", text)]

    def _disk_percent(self) -> float:
        return float(psutil.disk_usage(str(self._data.path)).percent)


def _memory_percent() -> float:
    return float(psutil.virtual_memory().percent)


def _of_flaw(flaw: Flaw, fleet: RuntimeReport | None) -> View:
    runtime = None if fleet is None or flaw.resource != "proxy" else fleet.proxies.get(flaw.id)
    problem = flaw.problem
    failed = not problem.serves or (runtime is not None and runtime.state == "failed")
    entry = _entry(
        ERROR if failed else WARNING, flaw.resource, flaw.id, flaw.name, problem.reason, problem.detail, problem.since
    )
    return {**entry, "upstream": problem.subject or None}


def _of_certificates(fleet: RuntimeReport | None, proxies: Sequence[StoredProxy]) -> Iterator[View]:
    for each in proxies:
        runtime = None if fleet is None else fleet.proxies.get(each.record.id)
        if runtime is not None and runtime.certificate_ends and _ends_soon(runtime.certificate_ends):
            yield _of_certificate("proxy", each.record.id, each.record.name, runtime.certificate_ends)


def _of_certificate(kind: str, identifier: str, name: str | None, ends: float) -> View:
    over = ends <= time.time()
    text = f"the certificate {'ended' if over else 'ends'} at {timestamp_text(ends)}"
    return _entry(ERROR if over else WARNING, kind, identifier, name, "certificate_ends", text)


def _ends_soon(ends: float) -> bool:
    return ends - time.time() < CERTIFICATE_DAYS * _DAY


def _entry(
    severity: str, kind: str, identifier: str | None, name: str | None, reason: str, text: str, since: float = 0.0
) -> View:
    return {
        "severity": severity,
        "kind": kind,
        "id": identifier,
        "name": name,
        "reason": reason,
        "error": text,
        "since": timestamp_text(since) if since else None,
        "upstream": None,
    }
