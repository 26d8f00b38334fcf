"""The addresses of name servers that are given by name: of this machine's own names, and by the system's name servers.

Each search is a lookup beside those of clients, and has a deadline: so no name that is dead keeps another waiting.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from actors.bus.loop import Loop
from actors.net.egress_guard import is_localhost
from actors.net.hosts_file import LOOPBACK, HostsFile
from actors.net.resolver_protocol import FOUND, SOME
from actors.resolver.lookup import Lookup, Reply
from actors.resolver.profiles import Profile
from actors.resolver.questions import Questions

DEADLINE = 5.0
"""Seconds; a question that waits for the server has ten by default, and another server as well."""

Found = Callable[[str | None], None]


class ServerNames:
    """`find` calls back once with an address, or with None. `refreshed` is the system's profile as it is now."""

    def __init__(self, loop: Loop, questions: Questions, refreshed: Callable[[], Profile]) -> None:
        self._loop = loop
        self._questions = questions
        self._refreshed = refreshed
        self._hosts = HostsFile()

    def find(self, host: str, found: Found) -> None:
        """Perhaps in this very call."""
        known = LOOPBACK if is_localhost(host) else self._hosts.find(host, self._loop.now)
        if known is not None:
            found(_reachable(known))
            return
        lookup = Lookup(self._loop, self._refreshed(), host, self._questions, _ended)
        lookup.waiting["", ""] = [_Search(self._loop, lookup, found).replied]
        lookup.start()


class _Search:
    """Of the replies to a lookup the first that says it."""

    def __init__(self, loop: Loop, lookup: Lookup, found: Found) -> None:
        self._found: Found | None = found
        self._deadline = loop.call_later(DEADLINE, lookup.give_up)

    def replied(self, reply: Reply) -> None:
        """See `OnReply`."""
        address = _reachable(reply.content) if reply.status in (SOME, FOUND) else None
        if self._found is None or (address is None and reply.status == SOME):
            return
        self._deadline.cancel()
        found, self._found = self._found, None
        found(address)


def _ended(_lookup: Lookup) -> None:
    """It has had no place to give back."""


def _reachable(addresses: Iterable[str]) -> str | None:
    """The first to which there is a way: a connection of datagrams sends nothing."""
    for address in addresses:
        try:
            with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((address, 53))
                return address
        except OSError:
            continue
    return None
