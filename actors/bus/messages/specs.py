"""What a proxy should be, as values that messages carry."""

from __future__ import annotations

from actors.bus.codec import message


@message
class AccessSpec:
    """The access rules of a proxy, as `config.access` reads their entries. A value, not a message by itself.

    `mode` is `enforce` or `report`.
    """

    allow_clients: tuple[str, ...] = ()
    deny_clients: tuple[str, ...] = ()
    allow_destinations: tuple[str, ...] = ()
    deny_destinations: tuple[str, ...] = ()
    mode: str = "enforce"


@message
class ProxySpec:
    """What a proxy should be, as the forwarding actor and the supervisor need it. A value, not a message by itself.

    `revision` is the store's: the greater one wins. `timeout` is for connecting and for idleness.
    `auth_hash` is bcrypt over the pre-hashed password, with `auth_username` None when no credentials are wanted.
    `tls` is the proxy's own certificate and key file, None for those of `server.tls`.
    `accept_proxy_protocol`: each connection begins with a header of the PROXY protocol.
    `bind_address` is where its own connections leave from, empty for any address of the machine.
    """

    id: str
    name: str
    host: str
    port: int
    protocol: str
    active: bool
    revision: int
    timeout: float
    keep_alive: bool
    max_connections: int
    auth_username: str | None
    auth_hash: str | None
    tls: tuple[str, str] | None = None
    access: AccessSpec = AccessSpec()
    accept_proxy_protocol: bool = False
    bind_address: str = ""


@message
class EgressSpec:
    """The egress guard's orders. A value, not a message by itself.

    `policy` is `public_only` or `off`; `allow` lists CIDRs and names that are excepted; `own` lists the addresses of
    the product's own listeners and API, `(host, port)`, which are refused in any case.
    """

    policy: str
    allow: tuple[str, ...]
    own: tuple[tuple[str, int], ...]
