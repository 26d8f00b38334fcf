"""Warnings about a proxy that unknown clients can use, which is rarely meant.

An open proxy is soon found and abused, and its operator is held responsible. It isn't refused, since a firewall may
protect it; the warning is in the proxy's view and in the log.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import NamedTuple

from config.model.access import ProxyAccess
from config.model.proxies import ProxyRecord
from config.net.names import is_loopback


class Warned(NamedTuple):
    """A warning, and the field that causes it."""

    field: str
    warning: str


def warnings(record: ProxyRecord) -> list[Warned]:
    """The warnings about a proxy; none for one that listens at loopback alone."""
    if is_loopback(record.host):
        return []
    found = []
    if not record.auth.enabled and _admits_all(record.access):
        found.append(
            Warned(
                "auth.enabled",
                f"any client that reaches {record.host} port {record.port} can use this proxy: it asks for no "
                "credentials, and access.allow_clients allows all clients",
            )
        )
    if record.accept_proxy_protocol:
        found.append(
            Warned(
                "accept_proxy_protocol",
                f"any client that reaches {record.host} port {record.port} can claim any address: "
                "allow only the balancer to reach it",
            )
        )
    return found


def _admits_all(access: ProxyAccess) -> bool:
    everything = any(ip_network(each).prefixlen == 0 for each in access.allow_clients)
    return not access.allow_clients or everything or access.mode == "report"
