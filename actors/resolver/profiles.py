"""How names are resolved for the proxies that say the same about it: by which name servers, and how long that is kept.

`DnsProfile` is for configured servers, to which names are put as they are. `SystemProfile` has those of the system,
with its search domains, and knows the names that are not of the DNS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from actors.bus.loop import Loop
from actors.resolver.servers import NameServer
from actors.resolver.system_config import SystemConfig
from actors.resolver.wire import AAAA, A
from config.net.dns_servers import DnsServer, read_server

SLOW_RTT = 0.1
SLOWER_BY = 3.0
"""A server that takes longer than `SLOW_RTT`, and that many times what the fastest takes, is asked after the others."""
TIMEOUT, ATTEMPTS = 5.0, 2
"""As the system's resolver has them (resolv.conf(5))."""
DEADLINE_MAX = 30.0

NewServer = Callable[[DnsServer, bool], NameServer]


class ProfileKey(NamedTuple):
    """What distinguishes a profile. `servers` empty: those of the system."""

    servers: tuple[str, ...] = ()
    min_ttl: int = 0
    max_ttl: int = 86_400


class DnsProfile:
    """See the module. `deadline` is the seconds that a question may take, in `attempts` at all servers."""

    def __init__(self, loop: Loop, key: ProfileKey, new_server: NewServer) -> None:
        self.key = key
        self.kinds: tuple[int, ...] = (AAAA, A)
        self.attempts = ATTEMPTS
        self.deadline = TIMEOUT * ATTEMPTS
        self._loop = loop
        self._new_server = new_server
        self._turn = 0
        self._rotates = False
        self._servers: list[NameServer] = [new_server(read_server(text), False) for text in key.servers]

    def refresh(self) -> bool:
        """Follow what the servers are taken from; True when cached names are no longer good."""
        return False

    def candidates(self, name: str) -> tuple[str, ...]:
        """The names to ask for, in order, for a name in lower case."""
        return (name.rstrip("."),)

    def is_systems(self, _name: str) -> bool:
        """Whether the name has to be resolved by the system's own means, since the DNS doesn't have it."""
        return False

    def in_order(self) -> tuple[list[NameServer], NameServer | None]:
        """The servers in the order to ask them, and one that is to be asked with the first to learn how it is."""
        if len(self._servers) == 1:
            return [*self._servers], None
        servers = self._rotated() if self._rotates else self._servers
        known = [each.rtt for each in servers if each.rtt is not None and not each.is_silent]
        best = min(known, default=0.0)

        def rank(server: NameServer) -> int:
            slow = server.rtt is not None and server.rtt > max(SLOW_RTT, SLOWER_BY * best)
            return 2 if server.is_silent else int(slow and len(known) > 1)

        ordered = sorted(servers, key=rank)
        probed = next((each for each in ordered[1:] if rank(each) and each.probe_due()), None)
        return ordered, probed

    def _rotated(self) -> Sequence[NameServer]:
        self._turn = (self._turn + 1) % max(1, len(self._servers))
        return self._servers[self._turn :] + self._servers[: self._turn]

    @property
    def servers(self) -> list[str]:
        """The names of its servers."""
        return [each.name for each in self._servers]

    def silent(self) -> list[str]:
        """The names of servers that have not responded lately."""
        return [each.name for each in self._servers if each.is_silent]

    def close(self) -> None:
        """Close the connections to its servers."""
        for server in self._servers:
            server.close()


class SystemProfile(DnsProfile):
    """By the system's configuration, which is followed."""

    def __init__(self, loop: Loop, key: ProfileKey, new_server: NewServer, system: SystemConfig) -> None:
        super().__init__(loop, key, new_server)
        self._system = system
        self._version = system.version
        self._apply()

    def refresh(self) -> bool:
        """See `DnsProfile`."""
        self._system.refresh(self._loop.now)
        if self._version == self._system.version:
            return False
        self._version = self._system.version
        self._apply()
        return True

    def candidates(self, name: str) -> tuple[str, ...]:
        """As resolv.conf(5) has it: `search` first if the name has fewer dots than `ndots`, else after it."""
        if name.endswith("."):
            return (name.rstrip("."),)
        known = self._system.resolv
        searched = tuple(f"{name}.{domain}" for domain in known.search)
        return (name, *searched) if name.count(".") >= known.ndots else (*searched, name)

    def is_systems(self, name: str) -> bool:
        """See `DnsProfile`."""
        return self._system.switch.knows(name)

    def _apply(self) -> None:
        known = self._system.resolv
        self.kinds = (A,) if known.no_aaaa else (AAAA, A)
        self.attempts, self._rotates = known.attempts, known.rotate
        self.deadline = min(known.timeout * known.attempts, DEADLINE_MAX)
        by_name = {each.name: each for each in self._servers}
        wanted = [DnsServer("udp", address, self._system.port) for address in known.servers]
        self._servers = [
            by_name.pop(str(each)) if str(each) in by_name else self._new_server(each, known.by_tcp) for each in wanted
        ]
        for gone in by_name.values():
            gone.close()
