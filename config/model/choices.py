"""Closed sets of words that settings, requests, records and commands have in common, and small rules: how many workers
there may be, periods of quotas. Light to import, for processes that load no models.

Periods are in UTC: a day, an ISO week from Monday, a calendar month, or all of time.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, get_args

ProxyProtocol = Literal["http", "https", "socks4", "socks5", "mixed"]
PROTOCOLS: tuple[ProxyProtocol, ...] = get_args(ProxyProtocol)
"""What a proxy speaks with its clients; `mixed`: whichever of the others a client begins with."""

UpstreamProtocol = Literal["http", "https", "socks4", "socks5"]
"""What an upstream speaks."""

ProxyStatus = Literal["active", "inactive"]

ClientAuth = Literal["require", "optional"]
"""Whether a client must show a certificate."""

LogLevel = Literal["debug", "info", "warning", "error", "critical"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)
"""Of log lines and access records, in order of severity."""

OUTCOMES = ("passed", "refused", "failed", "origin_error")
"""What became of a request: the proxy refused it, it or what is behind it failed, or the origin had an error."""

BindPolicy = Literal["random", "session", "account"]
"""By what a request has one of several source addresses."""

UpstreamPolicyName = Literal["failover", "round_robin", "least_connections", "sticky"]
"""How a proxy chooses among its upstreams."""

PoolPolicyName = Literal["failover", "round_robin", "least_connections", "sticky", "latency"]
POOL_POLICIES: tuple[PoolPolicyName, ...] = get_args(PoolPolicyName)
"""How one upstream of a pool is chosen."""

ListKind = Literal["domains", "networks", "geo"]
LIST_KINDS: tuple[ListKind, ...] = get_args(ListKind)
"""What the entries of a list are; `geo`: a database of places."""

ListFormat = Literal["plain", "hosts", "adblock", "rpz", "mmdb"]
LIST_FORMATS: tuple[ListFormat, ...] = get_args(ListFormat)
"""How the source of a list is written; `mmdb` is that of a list of kind `geo`, which has no other."""

PoolFormat = Literal["text", "csv"]
POOL_FORMATS: tuple[PoolFormat, ...] = get_args(PoolFormat)
"""How the source of a pool is written: an upstream in each line, or CSV."""

TlsNameCheck = Literal["auto", "off", "record", "match", "allowed"]
TLS_NAME_CHECKS: tuple[TlsNameCheck, ...] = get_args(TlsNameCheck)
"""What is done about the name in the TLS handshake of a tunnel: nothing, put into the record, compared with the host of
the request, or judged as if it had been requested; `auto`: `match` where an entry with names let the request through,
else `record`."""

TAG_PREFIX: Final = "tag:"
"""In `accounts` of a rule: those with the tag behind it."""
ANY_METHOD: Final = "*"
"""In `methods` of a rule: any of plain HTTP."""

MASK: Final = "***"
"""Stands for a secret wherever one is left out."""


WORKERS_MAX = 64
WORKERS_FORM = f"must be a whole number from 1 to {WORKERS_MAX}, or auto"
SOCKETS_MAX = 16_384
"""Listening sockets of one proxy in all its workers."""

PROCESSES_MAX = 4_000
"""Processes of all proxies that don't sleep: the tasks of the unit (`TasksMax=`) are enough for eight of each."""


def resolved(workers: int) -> int:
    """The number of workers; 0 (`auto`) is one for each core that this process may use."""
    return workers or max(1, min(WORKERS_MAX, len(os.sched_getaffinity(0))))


Period = Literal["day", "week", "month", "total"]
PERIODS: tuple[Period, ...] = get_args(Period)


def period_at(kind: str, moment: float) -> tuple[float, float | None]:
    """When the period of this kind began that `moment` is in, and when the next begins; Unix seconds.

    `total` began at 0 and has no end.
    """
    if kind == "total":
        return 0.0, None
    midnight = datetime.fromtimestamp(moment, UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if kind == "day":
        start, end = midnight, midnight + timedelta(days=1)
    elif kind == "week":
        start = midnight - timedelta(days=midnight.weekday())
        end = start + timedelta(days=7)
    elif kind == "month":
        start = midnight.replace(day=1)
        end = (start + timedelta(days=32)).replace(day=1)
    else:
        raise ValueError(f"{kind!r} is not one of {', '.join(PERIODS)}")
    return start.timestamp(), end.timestamp()
