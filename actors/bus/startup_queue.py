"""Questions to actors that are starting: they wait in the exchange until the actor can be asked.

Between the moment when a process is made and its hello nobody has the actor's name. A question that came then would
be refused, though the actor will be there within some milliseconds; so it is held, for a bounded time.
"""

from __future__ import annotations

from collections.abc import Callable

from actors.bus.loop import Loop, Timer

HELD_SECONDS = 2.5
"""How long a question is held: less than its asker waits, as a rule."""
HELD_MAX = 100
"""Questions held for one actor; those beyond it are refused."""

STARTING = "it is starting"


class _Held:
    __slots__ = ("refuse", "send", "timer")

    def __init__(self, send: Callable[[], None], refuse: Callable[[], None], timer: Timer) -> None:
        self.send = send
        self.refuse = refuse
        self.timer = timer


class WaitingRoom:
    """See the module. Names are as on the wire."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._expected: dict[bytes, list[_Held]] = {}

    def expect(self, name: bytes) -> None:
        """An actor of this name is starting."""
        self._expected.setdefault(name, [])

    def hold(self, name: bytes, send: Callable[[], None], refuse: Callable[[], None]) -> bool:
        """Call `send` when the actor is there, or `refuse` when it doesn't come. False when nothing is held for it."""
        held = self._expected.get(name)
        if held is None or len(held) >= HELD_MAX:
            return False

        def give_up() -> None:
            held.remove(entry)
            refuse()

        entry = _Held(send, refuse, self._loop.call_later(HELD_SECONDS, give_up))
        held.append(entry)
        return True

    def arrived(self, name: bytes) -> None:
        """The actor can be asked: send what was held for it."""
        for each in self._end(name):
            each.send()

    def gone(self, name: bytes) -> None:
        """No actor of this name is coming: refuse what was held for it."""
        for each in self._end(name):
            each.refuse()

    def _end(self, name: bytes) -> list[_Held]:
        held = self._expected.pop(name, [])
        for each in held:
            each.timer.cancel()
        return held
