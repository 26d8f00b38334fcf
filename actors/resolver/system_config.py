"""The system's configuration of name resolution: resolv.conf(5) and nsswitch.conf(5), read again when they change.

They are checked at most once a second, while names are resolved. A file may be written anew, renamed over, or be a
link that leads to another one: the file that the path leads to is what counts. A file that has vanished or can't be
read leaves what was known, since programs that write it delete it first.
"""

from __future__ import annotations

import logging
import os
import socket
from pathlib import Path
from typing import NamedTuple

from actors.log_lines import ThrottledLog
from config.net.addresses import is_address

RESOLV_CONF = Path("/etc/resolv.conf")
CHECKED_EVERY = 1.0
SIZE_MAX = 64 * 1024
SERVERS_MAX = 3
"""As many name servers does the system's own resolver use (resolv.conf(5))."""
SEARCH_MAX = 6
NDOTS_MAX, TIMEOUT_MAX, ATTEMPTS_MAX = 15, 30, 5

_IN_DNS = frozenset({"files", "dns", "resolve", "myhostname"})
_MULTICAST = ("mdns", "mdns4", "mdns6", "mdns_minimal", "mdns4_minimal", "mdns6_minimal")
_GATEWAY = frozenset({"_gateway", "_outbound"})

log = logging.getLogger(__name__)


class Resolv(NamedTuple):
    """What resolv.conf says."""

    servers: tuple[str, ...] = ("127.0.0.1",)
    search: tuple[str, ...] = ()
    ndots: int = 1
    timeout: float = 5.0
    attempts: int = 2
    rotate: bool = False
    by_tcp: bool = False
    no_aaaa: bool = False


class Switch(NamedTuple):
    """Of the line `hosts` in nsswitch.conf: which names are not of the DNS.

    `multicast`: those below `local` (RFC 6762). `own`: this machine's (nss-myhostname(8)). `plain`: those of one label,
    as there are services that know others.
    """

    multicast: bool = False
    own: str = ""
    plain: bool = False

    def knows(self, name: str) -> bool:
        """Whether the system resolves this name by other means than the DNS."""
        name = name.rstrip(".")
        if self.multicast and name.endswith(".local"):
            return True
        if self.own and (name == self.own or name in _GATEWAY):
            return True
        return self.plain and "." not in name


def read_resolv(text: str) -> Resolv:
    """As resolv.conf(5) says: the last `search` or `domain` counts; what can't be understood is left out."""
    servers: list[str] = []
    search: tuple[str, ...] = ()
    options: dict[str, int] = {}
    for line in text.splitlines():
        keyword, *values = line.split("#")[0].split(";")[0].split() or ("",)
        if keyword == "nameserver" and values and is_address(values[0]):
            servers.append(values[0])
        elif keyword in ("search", "domain"):
            search = tuple(each.lower().strip(".") for each in values if each.strip("."))[:SEARCH_MAX]
        elif keyword == "options":
            options |= dict(map(_option, values))
    return Resolv(
        tuple(dict.fromkeys(servers))[:SERVERS_MAX] or Resolv().servers,
        search,
        min(options.get("ndots", 1), NDOTS_MAX),
        float(min(max(options.get("timeout", 5), 1), TIMEOUT_MAX)),
        min(max(options.get("attempts", 2), 1), ATTEMPTS_MAX),
        "rotate" in options,
        "use-vc" in options,
        "no-aaaa" in options,
    )


def _option(text: str) -> tuple[str, int]:
    name, _, value = text.partition(":")
    return name, int(value) if value.isascii() and value.isdigit() else 1


def read_switch(text: str, own: str) -> Switch:
    """`own` is the name of this machine."""
    for line in text.splitlines():
        database, colon, services = line.partition("#")[0].partition(":")
        if colon and database.strip() == "hosts":
            names = {each for each in services.split() if not each.startswith("[")}
            others = names - _IN_DNS - set(_MULTICAST)
            return Switch(bool(names & set(_MULTICAST)), own if "myhostname" in names else "", bool(others))
    return Switch()


def system_servers() -> tuple[str, ...]:
    """The addresses of the system's name servers at this moment."""
    try:
        return read_resolv(RESOLV_CONF.read_text(encoding="utf-8", errors="replace")[:SIZE_MAX]).servers
    except OSError:
        return Resolv().servers


class SystemConfig:
    """`resolv` and `switch` as they are; `port` is that of the name servers."""

    def __init__(
        self,
        resolv: Path = RESOLV_CONF,
        switch: Path = Path("/etc/nsswitch.conf"),
        port: int = 53,
    ) -> None:
        self.port = port
        self.version = 0
        """Greater whenever something has changed."""
        self.resolv = Resolv()
        self.switch = Switch()
        self._paths = resolv, switch
        self._stamps: list[tuple[int, int, int] | None] = [None, None]
        self._check_at = float("-inf")
        self._unreadable = ThrottledLog(log, "cannot read the configuration of name resolution")
        self.refresh(float("-inf"))

    @property
    def servers(self) -> tuple[tuple[str, int], ...]:
        """Address and port of each."""
        return tuple((each, self.port) for each in self.resolv.servers)

    def refresh(self, now: float) -> None:
        """Read what has changed."""
        if now < self._check_at:
            return
        self._check_at = now + CHECKED_EVERY
        before = self.resolv, self.switch
        for place, path in enumerate(self._paths):
            self._reread(place, path)
        if (self.resolv, self.switch) != before:
            self.version += 1
            log.info("name servers of the system: %s", ", ".join(self.resolv.servers))

    def _reread(self, place: int, path: Path) -> None:
        try:
            found = os.stat(path)
            stamp = found.st_mtime_ns, found.st_size, found.st_ino
            if stamp == self._stamps[place] or found.st_size > SIZE_MAX:
                return
            text = path.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return
        except OSError as error:
            self._unreadable.error(f"{path}: {error.strerror or error}", logging.WARNING)
            return
        self._stamps[place] = stamp
        if place == 0:
            self.resolv = read_resolv(text)
        else:
            self.switch = read_switch(text, socket.gethostname().lower())
