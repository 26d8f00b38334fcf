"""A conversation with an HTTP session: bytes in, commands out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from actors.forwarding.protocols.commands import (
    Report,
)
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.session import SessionConfig
from tests.kit.conversation import Conversation

POLICY = SessionConfig(timeout=30, handshake_timeout=10, keep_alive_timeout=60, pseudonym=b"us", via=b"us")


GET = b"GET http://a.example/x HTTP/1.1\r\nHost: other.example\r\nAccept: */*\r\n\r\n"


OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


class Talk(Conversation):
    def __init__(self, **policy: Any) -> None:
        self.session = HttpSession(replace(POLICY, **policy), 0.0)
        super().__init__(self.session)

    def origin(self, *pieces: bytes) -> Talk:
        for piece in pieces:
            self.out += self.session.receive_from_origin(piece, self.now)
        return self

    def opened(self, reused: bool = False) -> Talk:
        self.out += self.session.opened(reused, self.now)
        return self

    @property
    def report(self) -> Report:
        (only,) = self.all(Report)
        assert isinstance(only, Report)
        return only


def exchange(request: bytes = GET, response: bytes = OK, **policy: Any) -> Talk:
    return Talk(**policy).client(request).opened().origin(response)
