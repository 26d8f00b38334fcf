"""What every open connection of a proxy is to the rest: a client connection, and whatever it becomes."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from actors.forwarding.limits.meter import MeteredConnection
from actors.forwarding.net.timer_wheel import Expirable


class ConnectionInfo(NamedTuple):
    """What a connection is doing at one moment. `target` and `user` are empty as long as there is none.

    `credential` is the id of the one that was used in place of the password. `source_address` is where it leaves from,
    where the configuration gives an address, and `source_rule` what of the configuration does. `parameters` are
    those of the user name, `pool` is that of the upstream. `listen_port` is the port of the proxy that the client has
    come to. `tls_name`, `alpn` and `tls_version` are those of the client's handshake in a tunnel, as in `Report`.
    """

    client_ip: str
    user: str
    target: str
    state: str
    bytes_in: int
    bytes_out: int
    upstream: str = ""
    credential: str = ""
    source_address: str = ""
    source_rule: str = ""
    parameters: str = ""
    pool: str = ""
    listen_port: int = 0
    tls_name: str = ""
    alpn: str = ""
    tls_version: str = ""


class OpenConnection(Expirable, MeteredConnection, Protocol):
    """An open connection or tunnel, which can be inspected and ended from outside."""

    number: int
    """When it came, in microseconds of `ForwardingContext.clock`: its age and its id within this process in one."""

    listen_port: int
    """The port of the proxy that the client has come to."""

    def info(self) -> ConnectionInfo:
        """What it is doing now."""

    def policies_changed(self) -> None:
        """Policies have changed, and what they no longer allow is to end: a tunnel, or an association."""

    def drop(self) -> None:
        """Close the sockets that are still open: `end` has raised an exception."""
