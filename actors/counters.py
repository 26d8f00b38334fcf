"""What is counted and measured of a proxy, each declared once, with its name on every surface.

A new counter is a row here (`NAME = _declare(Counter(…))`), its increment (`count.values[NAME] += 1` in a forwarding
actor) and a line of docs/metrics.md. Everything else follows from the row: what the actor reports, the totals on disk,
the series (`actors.metrics.catalogue`), the live feed, the `stats` of a proxy and their description, the exposition for
Prometheus and the push by OTLP. The module is below the collector, since forwarding actors load it, too.

And the names and ports of proxies by id, as the supervisor sends them to actors that know proxies by their ids.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:  # forwarding actors load this module without it
    from actors.bus.messages.supervision import SetProxyNames


class Counter(NamedTuple):
    """One counter. A surface whose name is "" does not have it by itself.

    `prometheus` goes without `proxyfleet_` and `_total`, `otlp` without `proxyfleet.`; `unit` is UCUM's. `series` is
    the name of how many there were in a bucket, `live` the field in the live feed, `view` the field in the `stats` of a
    proxy. `in_buckets`: kept by time, which a `series` needs. `stored` is its kind on disk in the table of labelled
    counts, the name if nothing is given; `column`: it is a column of the totals instead, as those of the first format.
    """

    name: str
    unit: str
    help: str
    prometheus: str = ""
    otlp: str = ""
    series: str = ""
    live: str = ""
    view: str = ""
    in_buckets: bool = False
    stored: str = ""
    column: bool = False
    passive: bool = False
    """Grows without any traffic, so that its growth alone causes no report."""


class LabelledCounter(NamedTuple):
    """A counter for each value of `label`; `field` is the member of the messages, `stored` its kind on disk."""

    field: str
    label: str
    help: str
    name: str
    stored: str
    unit: str = "{request}"


class Gauge(NamedTuple):
    """A value of now: the member `field` of the message that has it, by `divisor`. Names as in `Counter`."""

    field: str
    unit: str
    help: str
    prometheus: str
    otlp: str
    divisor: int = 1

    def read(self, message: object) -> float:
        """The value in `message`."""
        value: float = getattr(message, self.field)
        return value if self.divisor == 1 else value / self.divisor


_rows: list[Counter] = []


def _declare(row: Counter) -> int:
    """Returns its place in `Count.values`."""
    _rows.append(row)
    return len(_rows) - 1


REQUESTS = _declare(
    Counter(
        "requests",
        "{request}",
        "Requests that are over",
        series="requests_total",
        live="requests_total",
        view="total_requests",
        in_buckets=True,
        column=True,
    )
)
ERRORS = _declare(
    Counter(
        "errors",
        "{request}",
        "Requests that ended with a status from 500 on",
        prometheus="errors",
        otlp="errors",
        series="errors_total",
        live="errors_total",
        view="errors",
        in_buckets=True,
        column=True,
    )
)
DENIED = _declare(
    Counter(
        "denied",
        "{request}",
        "Requests and clients that were refused by guard, rules or limits",
        prometheus="denied",
        otlp="denied",
        series="denied_total",
        live="denied_total",
        view="denied",
        in_buckets=True,
        column=True,
    )
)
AUTH_FAILURES = _declare(
    Counter(
        "auth_failures",
        "{request}",
        "Requests without the right credentials",
        prometheus="auth_failures",
        otlp="auth_failures",
        series="auth_failures",
        live="auth_failures",
        in_buckets=True,
        column=True,
    )
)
CONNECTIONS = _declare(
    Counter(
        "connections",
        "{connection}",
        "Connections of clients",
        prometheus="connections",
        otlp="connections",
        column=True,
    )
)
BYTES_IN = _declare(
    Counter(
        "bytes_in",
        "By",
        "Bytes that clients sent",
        prometheus="received_bytes",
        otlp="received",
        live="bytes_in",
        view="bytes_in",
        in_buckets=True,
        column=True,
    )
)
BYTES_OUT = _declare(
    Counter(
        "bytes_out",
        "By",
        "Bytes that clients received",
        prometheus="sent_bytes",
        otlp="sent",
        live="bytes_out",
        view="bytes_out",
        in_buckets=True,
        column=True,
    )
)
CPU_SECONDS = _declare(
    Counter(
        "cpu_seconds",
        "s",
        "Processor time of its processes",
        prometheus="proxy_cpu_seconds",
        otlp="proxy.cpu_time",
        in_buckets=True,
        passive=True,
        column=True,
    )
)
RESPONSE_SECONDS = _declare(Counter("response_seconds", "s", "Sum of the response times", in_buckets=True, column=True))
RECORDS_DROPPED = _declare(
    Counter(
        "records_dropped",
        "{record}",
        "Access records that were lost",
        prometheus="records_dropped",
        otlp="records_dropped",
        view="records_dropped",
        stored="dropped",
    )
)
WAKES = _declare(
    Counter(
        "wakes",
        "{start}",
        "How often the proxy was started after a sleep",
        prometheus="proxy_wakes",
        otlp="proxy.wakes",
        stored="wake",
    )
)
INTERNAL_ERRORS = _declare(
    Counter(
        "internal_errors",
        "{connection}",
        "Connections that an error of the product itself has ended",
        prometheus="internal_errors",
        otlp="internal_errors",
        stored="internal_error",
    )
)
ORIGIN_CONNECTIONS_REUSED = _declare(
    Counter(
        "origin_connections_reused",
        "{request}",
        "Requests that went over a connection to origin or upstream kept from an earlier one",
        prometheus="origin_connections_reused",
        otlp="origin_connections_reused",
        series="origin_connections_reused",
        live="origin_connections_reused",
        view="origin_connections_reused",
        in_buckets=True,
    )
)

COUNTERS = tuple(_rows)
NAMES = tuple(row.name for row in COUNTERS)
PLACES = {name: place for place, name in enumerate(NAMES)}
PASSIVE = frozenset(row.name for row in COUNTERS if row.passive)
ZEROS = tuple(0.0 if row.unit == "s" else 0 for row in COUNTERS)
"""Only counters of seconds are no integers."""

STATUSES = LabelledCounter("statuses", "code", "Requests that are over, by status", "requests", "status")
REFUSALS = LabelledCounter("refusals", "reason", "Refused by guard, rules or limits, by reason", "refusals", "refused")
REPORTED = LabelledCounter("reported", "reason", "What rules in report mode would have refused", "reported", "reported")
DECISIONS = LabelledCounter(
    "decisions",
    "rule",
    "Requests that a rule of a policy has matched, by policy and rule",
    "policy_decisions",
    "decided",
)
TLS_NAMES = LabelledCounter(
    "tls_names",
    "kind",
    "Tunnels whose TLS handshake was read for its name, by what was found",
    "tls_names",
    "tls_name",
    "{tunnel}",
)
LABELLED = (STATUSES, REFUSALS, REPORTED, DECISIONS, TLS_NAMES)

OF_A_PROXY = (
    Gauge("active_connections", "{connection}", "Open connections", "active_connections", "active_connections"),
    Gauge("resident", "By", "Resident memory of its process", "proxy_resident_memory_bytes", "proxy.memory"),
    Gauge("loop_busy", "1", "Share of time that its process had a processor, 0 to 1", "loop_busy", "proxy.loop_busy"),
    Gauge(
        "loop_turn_max_ms",
        "ms",
        "Longest turn of its event loop in the last minute",
        "loop_turn_max_ms",
        "proxy.loop_turn_max",
    ),
)
"""Gauges in `ProxyStats`."""
OF_THE_MACHINE = (
    Gauge("cpu_percent", "1", "Processors in use, 0 to 1", "cpu_usage_ratio", "system.cpu_usage", 100),
    Gauge(
        "memory_percent", "1", "The machine's memory in use, 0 to 1", "memory_usage_ratio", "system.memory_usage", 100
    ),
    Gauge(
        "memory",
        "By",
        "Memory of all processes of the product, with what they share counted once",
        "memory_bytes",
        "memory.used",
    ),
    Gauge(
        "rss",
        "By",
        "Sum of the resident memory of the product's processes; what they share is in it several times",
        "resident_memory_bytes",
        "memory",
    ),
    Gauge("disk_free", "By", "Free where the data lie", "disk_free_bytes", "disk_free"),
)
"""Gauges in `SystemMetrics`."""


class ProxyNames:
    """A table that messages of the supervisor update."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, int]] = {}

    def update(self, message: SetProxyNames) -> None:
        """Apply new names and forget deleted proxies."""
        self._names.update(message.names)
        for proxy_id in message.gone:
            self._names.pop(proxy_id, None)

    def get(self, proxy_id: str) -> tuple[str, int] | None:
        """Name and port; None of a proxy that is unknown or deleted."""
        return self._names.get(proxy_id)
