"""Access records as OTLP logs, each once, in the order in which they were stored.

The log indexer numbers its records; the number up to which they are pushed is kept in a file. So a collector that was
away receives what it has missed, as long as the index has it. An accepted push whose number is not saved is sent again.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, ResourceLogs, ScopeLogs, SeverityNumber

from actors.bus.loop import Loop, Timer
from actors.bus.mailbox import Mailbox
from actors.bus.messages.common import LOGS
from actors.bus.messages.records import LogPage, LogTailPage, QueryLogs, TailLogs
from actors.counters import ProxyNames
from actors.telemetry.otlp_client import PushOutcome, ResourceIdentity, attributes, resource_of
from config import VERSION
from config.files.durable import replace_file
from config.text.access_fields import message_of

log = logging.getLogger(__name__)

AT_ONCE = 500
"""Records of one push."""
WAIT = 20.0
"""Seconds that the indexer waits for new records before it replies."""
REPLY_MAX = 40.0
PAUSE_FIRST, PAUSE_MAX = 1.0, 60.0
"""Seconds until a push that failed is tried again; each time twice as long."""
_EVER = 1e10
"""Unix seconds beyond every record."""
_NANO = 1_000_000_000
_SEVERITY = {
    "debug": SeverityNumber.SEVERITY_NUMBER_DEBUG,
    "info": SeverityNumber.SEVERITY_NUMBER_INFO,
    "warning": SeverityNumber.SEVERITY_NUMBER_WARN,
    "error": SeverityNumber.SEVERITY_NUMBER_ERROR,
    "critical": SeverityNumber.SEVERITY_NUMBER_FATAL,
}
_ATTRIBUTES = {
    "proxy_id": "proxy",
    "client_ip": "client.address",
    "user": "user.name",
    "method": "http.request.method",
    "target_url": "url.full",
    "status_code": "http.response.status_code",
    "response_time": "response_time_ms",
    "duration": "duration_ms",
    "bytes_in": "bytes_in",
    "bytes_out": "bytes_out",
    "request_id": "request_id",
    "reason": "reason",
    "parent": "parent",
    "detail": "detail",
    "rule": "rule",
    "credential": "credential",
    "source_address": "source.address",
    "parameters": "user.parameters",
    "pool": "pool",
    "country": "destination.geo.country.iso_code",
    "asn": "destination.as.number",
    "listen_port": "listen_port",
    "tls_name": "tls.client.server_name",
    "alpn": "alpn",
    "tls_version": "tls_version",
}
"""Names of OpenTelemetry's conventions where there are some, by the fields of a record."""

Push = Callable[[Any, Callable[[PushOutcome | None], None]], None]
"""Sends a message off the loop, then calls with the outcome, None when the thread failed."""


class RecordPush:
    """Follows the log indexer. `export` makes a push of rows; `on_result` receives its error, None without one."""

    def __init__(
        self,
        loop: Loop,
        mailbox: Mailbox,
        file: Path,
        export: Callable[[Iterable[dict[str, Any]]], Any],
        push: Push,
        on_result: Callable[[str | None], None],
    ) -> None:
        self._loop = loop
        self._mailbox = mailbox
        self._file = file
        self._export = export
        self._push = push
        self._on_result = on_result
        self._pause = PAUSE_FIRST
        self._retry: tuple[LogTailPage, Timer] | None = None
        self._after = _read(file)
        self._query_position()

    def retry_now(self) -> None:
        """Send what waits for its next attempt: the collector lives, or the pause is over."""
        if self._retry is not None:
            (tail, timer), self._retry = self._retry, None
            timer.cancel()
            self._send(tail)

    def _query_position(self) -> None:
        """A saved number beyond the last is of an index that is gone; without a saved one only new records count."""
        newest = QueryLogs(0.0, _EVER, 1, 0, None, None, None, count=False)
        self._mailbox.ask(LOGS, newest, self._on_newest, REPLY_MAX)

    def _on_newest(self, reply: Any) -> None:
        if not isinstance(reply, LogPage):
            self._loop.call_later(PAUSE_FIRST, self._query_position)
            return
        self._after = reply.upto if self._after is None else min(self._after, reply.upto)
        self._follow()

    def _follow(self) -> None:
        query = QueryLogs(0.0, 0.0, AT_ONCE, 0, None, None, None)
        self._mailbox.ask(LOGS, TailLogs(query, self._after, WAIT), self._on_tail, REPLY_MAX)

    def _on_tail(self, reply: Any) -> None:
        if not isinstance(reply, LogTailPage):
            self._loop.call_later(PAUSE_FIRST, self._follow)
        elif reply.rows:
            self._send(reply)
        else:
            self._after = reply.last
            self._follow()

    def _send(self, tail: LogTailPage) -> None:
        self._push(self._export(tail.rows), lambda outcome: self._on_sent(tail, outcome))

    def _on_sent(self, tail: LogTailPage, outcome: PushOutcome | None) -> None:
        error = "the push failed" if outcome is None else outcome.error
        self._on_result(error)
        if error is not None and (outcome is None or outcome.again):
            self._retry = tail, self._loop.call_later(self._pause, self.retry_now)
            self._pause = min(2 * self._pause, PAUSE_MAX)
            return
        if error is not None:
            log.error("telemetry.otlp: collector rejected %d access records; skipping them", len(tail.rows))
        self._pause = PAUSE_FIRST
        self._after = tail.last
        self._save_position()
        self._follow()

    def _save_position(self) -> None:
        try:
            replace_file(self._file, json.dumps({"after": self._after}).encode())
        except OSError as error:
            log.warning("telemetry.otlp: cannot save the position of pushed access records: %s", error)


def _read(file: Path) -> int | None:
    try:
        return int(json.loads(file.read_text())["after"])
    except (OSError, ValueError, KeyError, TypeError):
        return None  # none yet, or damaged


def export_of_records(identity: ResourceIdentity, rows: Iterable[dict[str, Any]], names: ProxyNames) -> Any:
    """The message to `/v1/logs`: rows as maps with the names of `config.text.access_fields.ACCESS_FIELDS`.

    A proxy has the name that it has now; one that is deleted has none.
    """
    scope = ScopeLogs(scope=InstrumentationScope(name="proxyfleet", version=VERSION))
    scope.log_records.extend(_record(row, names.get(row["proxy_id"])) for row in rows)
    return ExportLogsServiceRequest(resource_logs=[ResourceLogs(resource=resource_of(identity), scope_logs=[scope])])


def _record(row: dict[str, Any], proxy: tuple[str, int] | None) -> Any:
    when = round(row["timestamp"] * _NANO)
    values = {name: row[field] for field, name in _ATTRIBUTES.items() if row.get(field) not in ("", None)}
    if proxy is not None:
        values["proxy.name"] = proxy[0]
    return LogRecord(
        time_unix_nano=when,
        observed_time_unix_nano=when,
        severity_number=_SEVERITY.get(row["level"], SeverityNumber.SEVERITY_NUMBER_UNSPECIFIED),
        severity_text=row["level"],
        body=AnyValue(string_value=message_of(row)),
        attributes=attributes(values),
    )
