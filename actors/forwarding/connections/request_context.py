"""What belongs to one request of a client connection, and to none before or after it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actors.forwarding.access.test_clients import Tester
    from actors.forwarding.protocols.http.targets import Authority
    from actors.forwarding.upstreams.upstream import Parent


class RequestContext:
    """Made new for each request, as soon as the one before has been reported."""

    __slots__ = ("admitted", "parent", "session_word", "target", "tester", "user", "vouched")

    def __init__(self) -> None:
        self.user = ""
        """Whose it is; empty for nobody, or as long as that is not known."""
        self.vouched: bytes | None = None
        """The hash that the user's password was right for; None when no credentials were wanted."""
        self.tester: Tester | None = None
        """The test of the API that it is, if it is one."""
        self.session_word: str | None = None
        """What the user name says for choosing an upstream, with the user in front."""
        self.target: Authority | None = None
        self.admitted = False
        """Have credentials, account and limits let it go on? It may be sent twice."""
        self.parent: Parent | None = None
        """The upstream that it goes through, if any."""

    def __repr__(self) -> str:
        return f"<RequestContext of {self.user or 'nobody'} for {self.target and self.target.text!r}>"
