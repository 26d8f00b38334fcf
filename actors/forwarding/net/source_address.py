"""Where a proxy's own connections and datagrams leave from: `bind_address`, or whatever the kernel chooses."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Failure

_IP_BIND_ADDRESS_NO_PORT = 24
"""ip(7): the port is chosen when it is known where to, so that one address serves more than 28,000 connections."""


class SourceAddressUnavailable(OSError):
    """The address is not, or no more, one of this machine."""


@dataclass(frozen=True, slots=True)
class Source:
    """One address, or any when it is empty."""

    address: str = ""

    @property
    def family(self) -> socket.AddressFamily:
        """Of the address, which must not be empty."""
        return socket.AF_INET6 if ":" in self.address else socket.AF_INET

    def refuses(self, destination: str) -> Failure | None:
        """Why there is no way from here to an address: it is of the other family."""
        if not self.address or (":" in destination) == (":" in self.address):
            return None
        detail = "every address of the target is of another address family than this proxy's own address"
        return failures.unroutable(detail)

    def bind(self, sock: socket.socket) -> None:
        """Let what goes out of `sock` leave from here. Raises `SourceAddressUnavailable`, and `OSError` otherwise."""
        if not self.address:
            return
        if sock.type & socket.SOCK_STREAM:
            sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
        try:
            sock.bind((self.address, 0))
        except OSError as error:
            raise SourceAddressUnavailable(error.errno, f"{self.address}: {error.strerror}") from error


ANY = Source()
