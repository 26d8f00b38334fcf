"""What a rule may ask about a request."""

from __future__ import annotations

from collections.abc import Mapping

from actors.forwarding.policies.paths import readings
from actors.forwarding.protocols.commands import NO_PARAMS
from actors.net.egress_guard import embedded_ipv4
from config.net.ip import Address, plain


class Facts:
    """One request. `host` is a name as it was asked for, or an address, with `literal` then.

    `method` is empty for a tunnel, an association and all else that is not plain HTTP; `path` is that of the URL, with
    its query. `user` is the account's name, empty without one, `tags` are those of the account, `params` the
    parameters of the user name. `listen_port` is the port of the proxy that the client came to. `now` is Unix seconds:
    a request is judged at one moment.
    """

    __slots__ = ("_readings", "address", "client_ip", "host", "listen_port", "literal", "method", "name", "now",
    "params", "path", "port", "tags", "user")  # fmt: skip

    def __init__(
        self,
        host: str,
        port: int,
        literal: bool,
        client_ip: str,
        now: float,
        user: str = "",
        tags: tuple[str, ...] = (),
        method: str = "",
        path: str = "",
        params: Mapping[str, str] = NO_PARAMS,
        listen_port: int = 0,
    ) -> None:
        self.host = host
        self.port = port
        self.literal = literal
        self.client_ip = client_ip
        self.now = now
        self.user = user
        self.tags = tags
        self.method = method
        self.path = path
        self.params = params
        self.listen_port = listen_port
        self.name = host.lower().removesuffix(".")
        """The name of the target as entries are compared with it: lower case, no dot at the end."""
        self.address: Address | None = plain(host) if literal else None
        """The address of the target where it was asked for by that."""
        self._readings: tuple[str, ...] | None = None

    @property
    def client(self) -> Address:
        """The client's address."""
        return plain(self.client_ip)

    @property
    def query(self) -> str | None:
        """What follows the `?` of the URL, None without one."""
        _path, mark, query = self.path.partition("?")
        return query if mark else None

    @property
    def readings(self) -> tuple[str, ...]:
        """What the path may mean (`paths.readings`)."""
        if self._readings is None:
            self._readings = readings(self.path.partition("?")[0] or "/")
        return self._readings

    def __repr__(self) -> str:
        return f"<Facts: {self.user or self.client_ip} {self.method} {self.host}:{self.port} {self.path!r}>"


def inner_address(address: Address) -> Address | None:
    """The IPv4 address that an IPv6 one carries: rules that refuse hold for it as well."""
    return embedded_ipv4(address)
