"""SOCKS sessions under the fuzzer: a client that sends anything, and a network in which everything succeeds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from actors.forwarding.protocols.commands import (
    Associate,
    Authorize,
    CloseClient,
    Command,
    Listen,
    Open,
    RelayDatagrams,
    Report,
    ToClient,
    Tunnel,
)
from actors.forwarding.protocols.failures import prohibited
from actors.forwarding.protocols.session import SessionConfig
from actors.forwarding.protocols.socks.session import SocksSession
from actors.forwarding.protocols.socks.v4 import Socks4Session
from actors.forwarding.protocols.socks.v5 import Socks5Session
from tests.conformance.fuzzing.input import Input, read_input
from tests.conformance.fuzzing.invariants import check, check_size, check_work

POLICY = SessionConfig(timeout=30, handshake_timeout=10)
LONGEST_WAIT = 30.0
LOCAL = ("192.0.2.7", 4660)


class SocksSide:
    """One conversation. The flags: credentials are wanted; they are bad; the network says no; the peer is late."""

    def __init__(self, kind: type[Socks4Session | Socks5Session], given: Input) -> None:
        self.session: SocksSession = kind(replace(POLICY, wants_credentials=given.flag(0)), 0.0)
        self.over = False
        self.outcome: list[Any] = []
        self._given = given
        self._pending: list[Command] = []

    def run(self, pieces: list[bytes]) -> SocksSide:
        """Feed the pieces, reply to its commands, and then the end."""
        session = self.session
        for piece in filter(None, pieces):
            if not self.over and session.reads_client:
                self._take(session.receive_from_client(piece, 0.0))
            if not self._given.flag(3):
                self._reply()
        self._reply()
        if not self.over:
            self._take(session.receive_from_client(b"", 0.0))
        check_size(self.session)
        return self

    def _reply(self) -> None:
        """Reply to its commands, and to those that follow."""
        while self._pending and not self.over:
            question, session = self._pending.pop(0), self.session
            if self._given.flag(2):
                self._take(session.failed(prohibited("no"), 0.0))
                continue
            self._take(session.opened(False, 0.0, LOCAL))
            if isinstance(question, Listen):
                self._take(session.opened(False, 0.0, LOCAL))

    def _take(self, commands: list[Command]) -> None:
        for command in commands:
            assert not self.over, f"{command} behind the last word"
            if isinstance(command, Authorize):
                self.outcome.append(command)
                commands += self.session.authorized(None if self._given.flag(1) else "alice", 0.0)
            else:
                self._do(command)
        check(self.session, self.over, 0.0, LONGEST_WAIT)

    def _do(self, command: Command) -> None:
        if isinstance(command, Open | Listen | Associate):
            self._pending.append(command)
        if isinstance(command, ToClient) and self.outcome and isinstance(self.outcome[-1], ToClient):
            self.outcome[-1] = ToClient(self.outcome[-1].data + command.data)
        elif isinstance(command, Report):
            self.outcome.append(_uncounted(command))
        elif isinstance(command, Tunnel):
            self.outcome.extend((command.early, (Tunnel, _uncounted(command.report))))
        elif isinstance(command, RelayDatagrams):
            self.outcome.append((RelayDatagrams, _uncounted(command.report)))
        else:
            self.outcome.append(command)
        self.over = isinstance(command, CloseClient | Tunnel | RelayDatagrams)


def _uncounted(report: Report) -> Report:
    """Without the octets behind a refusal or a reply, which came in time or didn't."""
    copy = report.copy()
    copy.bytes_in = 0
    return copy


def _socks(kind: type[Socks4Session | Socks5Session], octets: bytes) -> None:
    given = read_input(octets)
    if given is None:
        return
    late = given.flag(3)  # then everything behind the request is held until the reply; else it depends on the cuts
    outcomes = [_reported(SocksSide(kind, given).run(way).outcome, late) for way in given.ways()]
    assert outcomes[0] == outcomes[1] == outcomes[2], outcomes
    if given.flag(6):
        much = given.much()
        check_work(lambda: SocksSide(kind, given).run(much), sum(map(len, much)))


def _reported(outcome: list[Any], late: bool) -> list[Any]:
    return outcome if late else [entry for entry in outcome if not isinstance(entry, bytes)]


def socks4(octets: bytes) -> None:
    """SOCKS4 and 4a."""
    _socks(Socks4Session, octets)


def socks5(octets: bytes) -> None:
    """SOCKS5."""
    _socks(Socks5Session, octets)
