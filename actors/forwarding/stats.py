"""What a forwarding actor counts, and the access records that it writes."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from actors.bus.loop import Loop
from actors.bus.records import Row
from actors.counters import (
    AUTH_FAILURES,
    BYTES_IN,
    BYTES_OUT,
    DENIED,
    ERRORS,
    REQUESTS,
    RESPONSE_SECONDS,
    ZEROS,
)
from actors.forwarding.access.rules import REASONS
from actors.forwarding.protocols.commands import Report
from actors.forwarding.protocols.failures import (
    ACCOUNTS_UNAVAILABLE,
    BACKEND_FAILED,
    BAD_PROXY_HEADER,
    CLIENT_CERTIFICATE_UNMATCHED,
    LATE_PROXY_HEADER,
    LIMIT_REASONS,
    POLICY_DENIED,
    TLS_NAME_DENIED,
    TLS_REASONS,
    Failure,
)
from actors.histogram import BOUNDS, BUCKETS
from config.text.reasons import REPORTED

if TYPE_CHECKING:
    from actors.forwarding.policies.judge import Applied

HANDSHAKES_RECORDED: Final = 30
HANDSHAKES_WITHIN: Final = 60.0
"""At most so many failed TLS handshakes get a record in so many seconds: a scanner makes thousands. All are counted."""
DENIALS: Final = frozenset(
    (
        "destination_ip_prohibited",
        "http_request_denied",
        BAD_PROXY_HEADER,
        CLIENT_CERTIFICATE_UNMATCHED,
        LATE_PROXY_HEADER,
        BACKEND_FAILED,
        POLICY_DENIED,
        TLS_NAME_DENIED,
        ACCOUNTS_UNAVAILABLE.reason,
        *TLS_REASONS,
        *REASONS,
        *LIMIT_REASONS,
    )
)


class ConnectionStats:
    """Cumulative counters since the actor's start; `values` are in the order of `actors.counters`.

    The other attributes are those of `messages.metrics.Counters`; `statuses` are by number, `latency` has all buckets.
    """

    def __init__(self, loop: Loop, add_record: Callable[[Row], None], id_prefix: str) -> None:
        """`id_prefix` begins the ids of records; no other process has it."""
        self._loop = loop
        self._add_record = add_record
        self._id_prefix = id_prefix
        self._last_id = 0
        self._failed_handshakes: deque[float] = deque(maxlen=HANDSHAKES_RECORDED)
        self.on_refusal: Callable[[str], None] | None = None
        """Called with the user of a refused request, if it has one."""
        self.on_name_denied: Callable[[str, Report], None] | None = None
        """Called with the proxy's id and the report of a tunnel that was refused for the name in its TLS handshake."""
        self.proxy_id = ""
        self.values: list[float] = list(ZEROS)
        self.last_request = 0.0
        self.refusals: dict[str, int] = {}
        self.reported: dict[str, int] = {}
        self.statuses: dict[int, int] = {}
        self.decisions: dict[str, int] = {}
        self.changed_decisions: dict[str, int] = {}
        """Those that have changed since they were published."""
        self.tls_names: dict[str, int] = {}
        self.latency = [0] * BUCKETS

    def count_bytes(self, count: int, from_client: bool) -> None:
        """Bytes that the kernel has moved past this process."""
        if from_client:
            self.values[BYTES_IN] += count
        else:
            self.values[BYTES_OUT] += count

    def exchange_ended(self, report: Report, client_ip: str, listen_port: int) -> None:
        """Count an exchange or tunnel that has ended, and write its record."""
        wall = time.time()
        values, status, latency = self.values, report.status, 0.0
        if report.responded:
            latency = report.responded - report.started
            values[RESPONSE_SECONDS] += latency
            self.latency[bisect_left(BOUNDS, latency)] += 1
        values[REQUESTS] += 1
        self.statuses[status] = self.statuses.get(status, 0) + 1
        self.last_request = wall
        if status >= 500:
            values[ERRORS] += 1
        if report.reason:
            self._count_reason(report)
        self._record(report, client_ip, listen_port, wall, latency)

    def decided(self, rules: Iterable[tuple[Applied, bool]]) -> None:
        """Count the rules of policies that a request has matched, each with whether it was only reported."""
        for rule, only_reported in rules:
            key = REPORTED + rule.label if only_reported else rule.label
            self.changed_decisions[key] = self.decisions[key] = self.decisions.get(key, 0) + 1

    def tls_name_checked(self, kind: str) -> None:
        """Count a tunnel whose first bytes were read for the name in its TLS handshake, once, by what was found.

        `kind` is `match`, `mismatch`, `not_tls`, `no_name`, `malformed` or `timeout`.
        """
        self.tls_names[kind] = self.tls_names.get(kind, 0) + 1

    def further_record(self, report: Report, client_ip: str, listen_port: int) -> None:
        """Write one more record of a request that has several; the request itself is counted once."""
        if report.reason:
            self._count_reason(report)
        self._record(report, client_ip, listen_port, time.time(), 0.0)

    def client_rejected(self, client_ip: str, listen_port: int, failure: Failure, request_id: str = "") -> None:
        """Count and record a client that was rejected before it sent a request; `request_id` is what it was sent."""
        report = self._without_request(failure)
        report.request_id = request_id
        self._count_reason(report)
        self._record(report, client_ip, listen_port, time.time(), 0.0)

    def handshake_failed(self, client_ip: str, listen_port: int, failure: Failure) -> None:
        """Count a failed TLS handshake with a client, and record it within bounds."""
        now, times = self._loop.now, self._failed_handshakes
        if len(times) < HANDSHAKES_RECORDED or now - times[0] > HANDSHAKES_WITHIN:
            times.append(now)
            self.client_rejected(client_ip, listen_port, failure)
        else:
            self._count_reason(self._without_request(failure))

    def _without_request(self, failure: Failure) -> Report:
        now = self._loop.now
        return Report(b"", "", failure.status, failure.reason, "", now, now, 0, 0).because(failure)

    def _record(self, report: Report, client_ip: str, listen_port: int, wall: float, latency: float) -> None:
        self._add_record(
            (
                wall,
                _level_of(report),
                self.proxy_id,
                client_ip,
                report.user,
                report.method.decode("ascii"),
                report.url,
                report.status,
                int(latency * 1000 + 0.5),
                int((self._loop.now - report.started) * 1000 + 0.5),
                report.bytes_in,
                report.bytes_out,
                report.request_id or self.new_id(),
                report.reason,
                report.upstream,
                report.detail,
                report.rule,
                report.credential,
                report.source_address,
                report.parameters,
                report.pool,
                report.country,
                report.asn,
                listen_port,
                report.tls_name,
                report.alpn,
                report.tls_version,
            )
        )

    def new_id(self) -> str:
        """The id of one more record."""
        self._last_id += 1
        return "%s%08x" % (self._id_prefix, self._last_id)  # noqa: UP031 - compiled, an f-string takes twice as long

    def _count_reason(self, report: Report) -> None:
        reason = report.reason
        if report.status == 407:
            self.values[AUTH_FAILURES] += 1
        if reason in DENIALS:
            self.values[DENIED] += 1
            self.refusals[reason] = self.refusals.get(reason, 0) + 1
            if report.user and self.on_refusal is not None:
                self.on_refusal(report.user)
            if reason == TLS_NAME_DENIED and self.on_name_denied is not None:
                self.on_name_denied(self.proxy_id, report)
        elif reason.startswith(REPORTED):
            rule = reason.removeprefix(REPORTED)
            self.reported[rule] = self.reported.get(rule, 0) + 1

    def __repr__(self) -> str:
        return f"<ConnectionStats of {self.proxy_id}: {self.values[REQUESTS]} requests>"


def _level_of(report: Report) -> str:
    """A refusal behind the 200 of its tunnel is a warning: the status does not say it, and blocks count by level."""
    status = report.status
    if status < 400:
        return "warning" if report.reason in DENIALS else "info"
    return "warning" if status >= 500 or (status == 407 and report.user) else "info"
