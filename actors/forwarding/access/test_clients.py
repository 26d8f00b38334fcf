"""Tests of a proxy by the API: each connects as a client with credentials of its own that are valid once."""

from __future__ import annotations

from actors.bounded import keep
from actors.bus.loop import Loop
from actors.bus.messages.forwarding import ReportOfTest

TESTERS_MAX = 64


class Tester:
    """One test. `request_id` is the id that its record gets; empty for one of its own."""

    __slots__ = ("detail", "reason", "request_id", "until", "upstream", "user")

    def __init__(self, user: str, request_id: str, until: float) -> None:
        self.user = user
        self.request_id = request_id
        self.until = until
        self.upstream = ""
        """The upstream that it went through."""
        self.reason = ""
        self.detail = ""
        """Why it was refused or failed, as in its access record."""

    def __repr__(self) -> str:
        return f"<Tester {self.user}>"


class Testers:
    """The tests that are expected, and the last ones that came."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._awaited: dict[tuple[str, bytes], Tester] = {}
        self._known: dict[str, Tester] = {}

    def expect(self, user: str, token: str, request_id: str, ttl: float) -> None:
        """Accept these credentials once within `ttl` seconds; the token is empty where the protocol has no
        passwords."""
        tester, key = Tester(user, request_id, self._loop.now + ttl), (user, token.encode())
        keep(self._awaited, key, tester, TESTERS_MAX)
        keep(self._known, user, tester, TESTERS_MAX)

        def expire() -> None:
            if self._awaited.get(key) is tester:
                del self._awaited[key]

        self._loop.call_later(ttl, expire)

    def redeem(self, user: str | None, password: bytes | None) -> Tester | None:
        """The test with these credentials, which are invalid from now on; None without one."""
        if user is None or not self._awaited:
            return None
        tester = self._awaited.pop((user, password or b""), None)
        return tester if tester is not None and tester.until > self._loop.now else None

    def report_of(self, user: str) -> ReportOfTest:
        """The result of the test with this user, as far as known. The test is over, so its credentials are invalid."""
        for key in [key for key in self._awaited if key[0] == user]:
            del self._awaited[key]
        tester = self._known.get(user)
        return ReportOfTest() if tester is None else ReportOfTest(tester.upstream or None, tester.reason, tester.detail)

    def __len__(self) -> int:
        """Tests that are expected."""
        return len(self._awaited)
