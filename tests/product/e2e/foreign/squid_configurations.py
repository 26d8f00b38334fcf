"""Configurations for squid and, converted, for the product; with the requests to compare them by."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

REQUESTS = 200
HOSTS = {
    "www.example": "127.77.0.1",
    "a.example": "127.77.0.2",
    "b.a.example": "127.77.1.3",
    "xa.example": "127.77.0.4",
    "blocked.example": "127.77.0.5",
    "sub.blocked.example": "127.77.1.6",
}
"""Names of targets, for which no server listens: a request that is allowed fails with 502 or 503."""
PEERS = {"127.77.9.9": 200, "127.77.9.8": 203}
"""Addresses of upstreams, with the status by which each responds to everything but CONNECT."""
CLIENTS = ["127.0.0.1", "127.1.0.1", "127.1.2.3", "127.2.0.1"]
METHODS = ["GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PROPFIND", "CONNECT", "CONNECT"]
PORTS = [80, 443, 8443, 21, 24, 9]
PATHS = ["/", "/x/", "/x/y?z=1", "/xy", "/cgi-bin/a", "/a/cgi-bin/", "/x/a.iso", "/p?f=/x/a.ISO"]
USERS = {"": "", "alice": "sesame", "bob": "open", "carol": "wrong"}
"""User names and the passwords that clients send; carol's is another one."""


@dataclass(frozen=True)
class Request:
    """One request of a client at one of the listeners."""

    listener: int
    client: str
    method: str
    host: str
    port: int
    path: str
    user: str


@dataclass(frozen=True)
class Configuration:
    """Lines of a squid.conf: `{port0}` and on stand for its ports, `{peer0}` and on for those of its upstreams.

    `{folder}` is that of its files.
    """

    lines: str
    listeners: int = 1
    upstreams: int = 0
    users: tuple[str, ...] = ("",)
    files: Mapping[str, str] | None = None

    def requests(self) -> list[Request]:
        """Different in each of the configurations, the same in each run."""
        chance = random.Random(self.lines)
        targets = [*HOSTS, *HOSTS.values()]
        weights = [3] * len(HOSTS) + [1] * len(HOSTS)
        return [
            Request(
                chance.randrange(self.listeners),
                chance.choice(CLIENTS),
                chance.choice(METHODS),
                chance.choices(targets, weights)[0],
                chance.choice(PORTS),
                chance.choice(PATHS),
                chance.choice(self.users),
            )
            for _ in range(REQUESTS)
        ]


USUAL = """
acl localnet src 127.1.0.0/16
acl SSL_ports port 443 8443
acl Safe_ports port 80 21 443
acl Safe_ports port 1025-65535
http_access deny !Safe_ports
http_access deny CONNECT !SSL_ports
http_access allow localhost manager
http_access deny manager
http_access allow localnet
http_access deny all
http_port 127.0.0.1:{port0}
"""
PASSWORDS = """
auth_param basic program /usr/lib/squid/basic_ncsa_auth {folder}/passwords
auth_param basic children 2 startup=1 idle=1
auth_param basic realm office
acl known proxy_auth REQUIRED
acl managers proxy_auth alice
acl blocked dstdomain -n "{folder}/blocked"
acl writes method POST PUT DELETE
http_access deny !known
http_access deny !managers blocked
http_access deny writes !managers all
http_access allow known
http_access deny all
http_port 127.0.0.1:{port0}
"""
ALLOWED = """
acl builds src 127.1.0.0/16 127.2.0.1
acl allowed dstdomain -n "{folder}/allowed"
acl web port 80 443
acl elsewhere src 127.1.2.0-127.1.2.255
http_access deny !web
http_access deny elsewhere !allowed
http_access allow allowed
http_access allow builds CONNECT
http_access deny all
http_port 127.0.0.1:{port0}
"""
CONDITIONS = """
acl office src 127.1.0.0/16
acl inner dst 127.77.1.0/24
acl reads method GET HEAD
acl writes method POST PUT DELETE OPTIONS PROPFIND CONNECT
acl plain proto HTTP
acl odd port 1-79 81-442
http_access deny odd !office
http_access deny inner writes
http_access allow office reads
http_access deny plain !reads
http_access allow office
http_access allow reads
http_port 127.0.0.1:{port0}
"""
UPSTREAMS = """
http_port 127.0.0.1:{port0}
http_port 127.0.0.1:{port1}
acl web port 80 443
acl bad dstdomain -n .blocked.example
acl intern dstdomain -n .a.example
acl away src 127.2.0.0/16
cache_peer 127.77.9.9 parent {peer0} 0 no-query no-digest no-netdb-exchange name=first
cache_peer 127.77.9.8 parent {peer1} 0 no-query no-digest no-netdb-exchange name=second round-robin
cache_peer_access first allow intern
cache_peer_access second deny intern
always_direct allow away
never_direct allow all
http_access deny CONNECT !web
http_access deny bad
http_access allow all
"""

_ONE = "cache_peer 127.77.9.9 parent {peer0} 0 no-query no-digest no-netdb-exchange name=first"
_TWO = "cache_peer 127.77.9.8 parent {peer1} 0 no-query no-digest no-netdb-exchange name=second"
INTRANET = f"""
http_port 127.0.0.1:{{port0}}
acl intern dstdomain -n .a.example
acl bad dstdomain -n .blocked.example
{_ONE}
cache_peer_access first allow intern
cache_peer_access first deny all
http_access deny bad
http_access allow all
never_direct allow intern
"""
NEVER = f"""
http_port 127.0.0.1:{{port0}}
acl outer dstdomain -n www.example .blocked.example
acl office src 127.1.0.0/16
{_ONE}
{_TWO} round-robin
cache_peer_access first deny outer
cache_peer_access first deny office
cache_peer_access second deny outer
cache_peer_access second allow office
http_access deny CONNECT outer
http_access allow all
never_direct deny outer
"""
ALWAYS = f"""
http_port 127.0.0.1:{{port0}}
acl office src 127.1.0.0/16
acl near dstdomain -n .a.example
acl web port 80 443
acl bad dstdomain -n .blocked.example
{_ONE} default
{_TWO}
cache_peer_access first allow web
cache_peer_access first deny all
always_direct allow near
always_direct deny office
always_direct allow CONNECT
nonhierarchical_direct off
http_access deny bad
http_access allow all
"""
CONFIGURATIONS = {
    "usual": Configuration(USUAL),
    "passwords": Configuration(PASSWORDS, users=tuple(USERS), files={"blocked": ".blocked.example\nb.a.example\n"}),
    "allowed": Configuration(ALLOWED, files={"allowed": "# mirrors\n.a.example\nwww.example\n"}),
    "conditions": Configuration(CONDITIONS),
    "upstreams": Configuration(UPSTREAMS, listeners=2, upstreams=2),
    "intranet": Configuration(INTRANET, upstreams=1),
    "never": Configuration(NEVER, upstreams=2),
    "always": Configuration(ALWAYS, upstreams=2),
}
