"""Closed sets of words that settings, requests, records and commands have in common; light to import."""

from __future__ import annotations

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
