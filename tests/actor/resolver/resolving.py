"""The resolver's service in the test's own thread: names in, replies out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from actors.bus.loop import Loop
from actors.resolver.profiles import DnsProfile, ProfileKey
from actors.resolver.service import LookupReply, Service
from actors.resolver.system_config import SystemConfig

DEADLINE = 120.0


class Resolving:
    """`forgotten` has the names that actors would have had to drop."""

    def __init__(self, folder: Path, port: int = 53) -> None:
        """`port` is that of the system's name servers."""
        self.skipped = 0.0
        self.loop = Loop(lambda: time.monotonic() + self.skipped)
        self.forgotten: list[str] = []
        self.resolv_conf = folder / "resolv.conf"
        self.nsswitch_conf = folder / "nsswitch.conf"
        system = SystemConfig(self.resolv_conf, self.nsswitch_conf, port)
        self.service = Service(self.loop, system, self.forgotten.append)

    def profile(self, *servers: str, **limits: int) -> DnsProfile:
        """For these servers, or the system's."""
        return self.service.acquire(ProfileKey(servers, **limits))

    def begin(self, profile: DnsProfile, name: str, client: str = "192.0.2.1") -> list[LookupReply]:
        """Request a name; the replies are in the list as they come."""
        replies: list[LookupReply] = []
        self.service.resolve(profile, name, ("", client), replies.append)
        return replies

    def resolve(self, profile: DnsProfile, name: str, client: str = "192.0.2.1") -> LookupReply:
        """The last reply for a name."""
        replies = self.begin(profile, name, client)
        self.turn_until(lambda: replies and replies[-1].status != 0)
        return replies[-1]

    def addresses(self, profile: DnsProfile, names: Sequence[str]) -> list[tuple[str, ...] | str]:
        """The contents of the replies for names that are requested at the same time."""
        every = [self.begin(profile, name) for name in names]
        self.turn_until(lambda: all(each and each[-1].status != 0 for each in every))
        return [each[-1].content for each in every]

    def turn_until(self, condition: Callable[[], object]) -> None:
        """Turn the loop until something holds."""
        end = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < end
            self.loop.turn(0.05)

    def skip(self, seconds: float) -> None:
        """Let time pass."""
        self.skipped += seconds
        self.loop.turn(0.0)

    def close(self) -> None:
        """Close everything."""
        self.service.close()
        self.loop.close()
