"""What about a proxy is probably not meant: that people whom nobody knows can use it.

A proxy that anybody may use is soon found and used for what its operator has to answer for. It isn't refused, since a
firewall may stand before it; it is told with the proxy and in the log.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import NamedTuple

from config.model.access import ProxyAccess
from config.model.proxies import ProxyRecord
from config.net.host_names import is_loopback


class Warned(NamedTuple):
    """What the field lets happen."""

    field: str
    warning: str


def warnings(record: ProxyRecord) -> list[Warned]:
    """Of a proxy that listens at loopback alone there are none."""
    if is_loopback(record.host):
        return []
    found = []
    if not record.auth.enabled and _admits_all(record.access):
        found.append(
            Warned(
                "auth.enabled",
                f"whoever reaches {record.host} port {record.port} can use this proxy: it asks for no credentials, "
                "and access.allow_clients limits nobody",
            )
        )
    if record.accept_proxy_protocol:
        found.append(
            Warned(
                "accept_proxy_protocol",
                f"whoever reaches {record.host} port {record.port} can say that they have any address: "
                "let the balancer alone reach it",
            )
        )
    return found


def _admits_all(access: ProxyAccess) -> bool:
    everything = any(ip_network(each).prefixlen == 0 for each in access.allow_clients)
    return not access.allow_clients or everything or access.mode == "report"
