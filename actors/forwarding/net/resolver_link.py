"""The connection of a forwarding actor to the resolver (`actors.net.resolver_protocol`).

It is made with the first name, to the resolver of the proxies' own name servers where the profile has some. When it
ends, as with the resolver's process, all requests under way fail at once. A resolver that is silent while names wait is
asked whether it is there; one that hangs counts as gone until it replies again.

How an actor's names are resolved: what its proxy says, on top of the settings `proxy.dns`.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgpack

from actors.bus.loop import Loop, Timer
from actors.bus.messages.specs import DnsSpec
from actors.net.resolver_protocol import FORGET, PING, PROFILE, SOME, PacketLink
from config.files.paths import RunDir

RETRY_AFTER = 0.1
"""Seconds between two attempts to connect."""
SILENT_FOR = 0.5
"""Seconds without a packet while names wait, after which the resolver is asked whether it is there."""
HUNG_AFTER = 1.0
"""Seconds that it has to reply to that."""


class ResolverProfile(NamedTuple):
    """How the names of this actor are resolved; `servers` empty: as the system does. `proxy` is the one that names the
    servers itself, empty where it doesn't."""

    servers: tuple[str, ...] = ()
    min_ttl: int = 0
    max_ttl: int = 86_400
    proxy: str = ""


class ResolverReply(NamedTuple):
    """A reply of the resolver. `ttl` is the seconds that it holds."""

    status: int
    ttl: float
    content: Any


OnReply = Callable[[ResolverReply | None], None]
"""Called with the reply, twice if the first has only some of the addresses; None: the resolver is gone."""


class ResolverLink:
    """`on_forget` is called with a name that is no longer to be kept, empty for all.

    In `run_dir` are the sockets of the resolver, and of the one that asks name servers of proxies.
    """

    def __init__(self, loop: Loop, run_dir: RunDir) -> None:
        self.on_forget: Callable[[str], None] = lambda _name: None
        self._loop = loop
        self._paths = str(run_dir.resolver), str(run_dir.proxy_resolver)
        self._profile = ResolverProfile()
        self._link: PacketLink | None = None
        self._pending: dict[int, OnReply] = {}
        self._number = 0
        self._retry_at = float("-inf")
        self._hung = False
        """Whether the last connection was given up since nothing came: nothing is asked until something does."""
        self._received_at = 0.0
        self._watchdog: Timer | None = None

    def set_profile(self, profile: ResolverProfile) -> None:
        """Have names resolved in another way from now on."""
        before, self._profile = self._profile, profile
        if bool(before.proxy) is not bool(profile.proxy):
            self._retry_at, self._hung = float("-inf"), False
            self.close()
        elif profile != before and self._link is not None:
            self._link.send([PROFILE, *profile])

    def ask(self, name: str, client: str, done: OnReply) -> bool:
        """Request a name at the cost of this client; False when there is no resolver. `done` is called later."""
        link = self._link or self._connect()
        if link is None or self._hung:
            return False
        self._number += 1
        self._pending[self._number] = done
        if self._watchdog is None:
            self._received_at = self._loop.now
            self._watchdog = self._loop.call_later(SILENT_FOR, self._check_silence)
        link.send([self._number, name, client])
        return True

    def close(self) -> None:
        """Close it; all requests under way fail."""
        if self._watchdog is not None:
            self._watchdog.cancel()
            self._watchdog = None
        if self._link is not None:
            self._link.close()
            self._link = None
        pending, self._pending = self._pending, {}
        for done in pending.values():
            done(None)

    # --- the connection ---

    def _connect(self) -> PacketLink | None:
        if self._loop.now < self._retry_at:
            return None
        self._retry_at = self._loop.now + RETRY_AFTER
        sock = None
        try:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            sock.connect(self._paths[bool(self._profile.proxy)])
        except OSError:  # no resolver, or no descriptor
            if sock is not None:
                sock.close()
            return None
        self._link = link = PacketLink(self._loop, sock, self._handle, self.close)
        link.send([PROFILE, *self._profile])
        if self._hung:
            link.send([PING])
        return link

    def _handle(self, data: bytes) -> None:
        packet = msgpack.unpackb(data)
        self._received_at = self._loop.now
        self._hung = False
        number = packet[0]
        if number == FORGET:
            self.on_forget(packet[1])
        elif number > 0:
            reply = ResolverReply(*packet[1:])
            done = self._pending.get(number) if reply.status == SOME else self._pending.pop(number, None)
            if done is not None:
                done(reply)

    # --- a resolver that hangs ---

    def _check_silence(self) -> None:
        self._watchdog = None
        if not self._pending:
            return
        silent = self._loop.now - self._received_at
        if silent < SILENT_FOR:
            self._watchdog = self._loop.call_later(SILENT_FOR - silent, self._check_silence)
            return
        if self._link is not None:
            self._link.send([PING])
        self._watchdog = self._loop.call_later(HUNG_AFTER, lambda: self._judge(silent))

    def _judge(self, silent: float) -> None:
        self._watchdog = None
        if self._pending and self._loop.now - self._received_at >= silent + HUNG_AFTER:
            self._hung = True
            self.close()
        elif self._pending:
            self._watchdog = self._loop.call_later(SILENT_FOR, self._check_silence)

    def __repr__(self) -> str:
        return f"<ResolverLink, {len(self._pending)} under way{', hung' if self._hung else ''}>"


@dataclass(frozen=True, slots=True)
class DnsSettings:
    """`names` have addresses that come before all name servers; `prefers` is `any`, `ipv4` or `ipv6`."""

    profile: ResolverProfile = field(default_factory=ResolverProfile)
    prefers: str = "any"
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def merged(group: Mapping[str, Any], own: DnsSpec, proxy: str) -> DnsSettings:
    """`group` is that of the settings, `own` of this proxy."""
    servers = own.servers or tuple(group["servers"])
    max_ttl = own.max_ttl or group["max_ttl"]
    min_ttl = min(own.min_ttl or group["min_ttl"], max_ttl)
    profile = ResolverProfile(servers, min_ttl, max_ttl, proxy if own.servers else "")
    prefers = group["prefer"] if own.prefer == "default" else own.prefer
    names = {name: tuple(addresses) for name, addresses in group["hosts"].items()}
    return DnsSettings(profile, prefers, {**names, **own.hosts})
