"""The tables of the sessions: every event in every phase, on the tables and on sessions made by conversations."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Any

import pytest

from actors.forwarding.protocols import mixed
from actors.forwarding.protocols.failures import dns_failed
from actors.forwarding.protocols.http import states as http
from actors.forwarding.protocols.http.session import HttpSession
from actors.forwarding.protocols.socks import states as socks
from actors.forwarding.protocols.socks.v4 import Socks4Session
from actors.forwarding.protocols.socks.v5 import Socks5Session
from actors.forwarding.protocols.state_machine import IllegalEventError, transitions
from tests.kit.compiled import attributes
from tests.kit.http_conversation import GET, POLICY
from tests.kit.tables import table

POST = b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n"
HALF_A_RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\nhello"
CONNECT = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\n\r\n"
NO_METHOD, BY_PASSWORD = b"\x05\x01\x00", b"\x05\x01\x02"
ADA = b"\x01\x03ada\x01x"
HERE = b"\x00\x01\x7f\x00\x00\x01\x00\x50"
LISTENING = ("127.0.0.1", 1080)

Session = HttpSession | Socks4Session | Socks5Session | mixed.MixedSession
Step = Callable[[Any], object]


def client(data: bytes) -> Step:
    return lambda session: session.receive_from_client(data, 0.0)


def origin(data: bytes) -> Step:
    return lambda session: session.receive_from_origin(data, 0.0)


def opened(session: Any) -> object:
    return session.opened(False, 0.0, LISTENING)


def session_of(kind: type[Session], wants_credentials: bool, *steps: Step) -> Session:
    session = kind(replace(POLICY, wants_credentials=wants_credentials), 0.0)
    for step in steps:
        step(session)
    return session


Way = tuple[type[Session], bool, tuple[Step, ...]]

HTTP: dict[http.HttpPhase, Way] = {
    http.HttpPhase.IDLE: (HttpSession, False, ()),
    http.HttpPhase.HEAD: (HttpSession, False, (client(b"GET "),)),
    http.HttpPhase.AUTHORIZE: (HttpSession, True, (client(GET),)),
    http.HttpPhase.OPEN: (HttpSession, False, (client(GET),)),
    http.HttpPhase.EXCHANGE: (HttpSession, False, (client(POST), opened, origin(HALF_A_RESPONSE))),
    http.HttpPhase.TUNNEL: (HttpSession, False, (client(CONNECT), opened)),
    http.HttpPhase.CLOSED: (HttpSession, False, (client(b""),)),
}
SOCKS: dict[socks.SocksPhase, Way] = {
    socks.SocksPhase.GREETING: (Socks5Session, False, ()),
    socks.SocksPhase.PASSWORD: (Socks5Session, True, (client(BY_PASSWORD),)),
    socks.SocksPhase.REQUEST: (Socks5Session, False, (client(NO_METHOD),)),
    socks.SocksPhase.AUTHORIZE: (Socks5Session, True, (client(BY_PASSWORD + ADA),)),
    socks.SocksPhase.OPEN: (Socks5Session, False, (client(NO_METHOD + b"\x05\x01" + HERE),)),
    socks.SocksPhase.LISTEN: (Socks5Session, False, (client(NO_METHOD + b"\x05\x02" + HERE),)),
    socks.SocksPhase.PEER: (Socks5Session, False, (client(NO_METHOD + b"\x05\x02" + HERE), opened)),
    socks.SocksPhase.RELAY: (Socks5Session, False, (client(NO_METHOD + b"\x05\x03" + HERE),)),
    socks.SocksPhase.TUNNEL: (Socks5Session, False, (client(NO_METHOD + b"\x05\x01" + HERE), opened)),
    socks.SocksPhase.CLOSED: (Socks5Session, False, (client(b""),)),
}
MIXED: dict[mixed.MixedPhase, Way] = {
    mixed.MixedPhase.FIRST_BYTE: (mixed.MixedSession, False, ()),
    mixed.MixedPhase.KNOWN: (mixed.MixedSession, False, (client(b"\x05"),)),
    mixed.MixedPhase.CLOSED: (mixed.MixedSession, False, (client(b""),)),
}
INPUTS: dict[str, Step] = {
    "CLIENT_DATA": client(b"\x05"),
    "CLIENT_END": client(b""),
    "CLIENT_LOST": lambda session: session.client_disconnected(0.0),
    "AUTHORIZED": lambda session: session.authorized("ada", 0.0),
    "UNAUTHORIZED": lambda session: session.authorized(None, 0.0),
    "OPENED": opened,
    "FAILED": lambda session: session.failed(dns_failed("no"), 0.0),
    "ORIGIN_DATA": origin(b"x"),
    "ORIGIN_END": origin(b""),
    "ORIGIN_LOST": lambda session: session.origin_disconnected(0.0),
    "REQUEST_RELAYED": lambda session: session.request_relayed(1, 0.0, False),
    "RESPONSE_RELAYED": lambda session: session.response_relayed(1, 0.0, False),
    "TIMED_OUT": lambda session: session.timed_out(0.0),
    "ABORT": lambda session: session.abort("ended_by_operator", 0.0),
}
"""What a driver may do to a session, by the event that it is."""


def state_of(session: Session) -> object:
    names = attributes(session)
    assert "phase" in names
    return {name: repr(getattr(session, name)) for name in names}


PRODUCT = [
    pytest.param(transitions, events[name], way, phase, name, id=f"{kind}-{phase}-{name}")
    for kind, events, transitions, ways in (
        ("http", http.HttpEvent, http.TRANSITIONS, HTTP),
        ("socks", socks.SocksEvent, socks.TRANSITIONS, SOCKS),
        ("mixed", mixed.MixedEvent, mixed.TRANSITIONS, MIXED),
    )
    for (phase, way), name in itertools.product(ways.items(), INPUTS)
    if name in events.__members__
]


@table(("transitions", "event", "way", "phase", "name"), PRODUCT)
def test_a_session_takes_the_inputs_of_its_phase_and_all_others_change_nothing(
    transitions: Any, event: Any, way: Way, phase: Any, name: str
) -> None:
    kind, wants_credentials, steps = way
    session = session_of(kind, wants_credentials, *steps)
    assert session.phase is phase
    before = state_of(session)
    if event in transitions[phase]:
        INPUTS[name](session)
        return
    with pytest.raises(IllegalEventError, match=f"{name} can't happen in the state {phase.name}"):
        INPUTS[name](session)
    assert state_of(session) == before


@table(("phase", "event"), list(itertools.product(http.HttpPhase, http.HttpEvent)))
def test_http_goes_where_the_table_says(phase: http.HttpPhase, event: http.HttpEvent) -> None:
    moves(session_of(HttpSession, False), http.TRANSITIONS, phase, event)


@table("kind", [Socks4Session, Socks5Session])
@table(("phase", "event"), list(itertools.product(socks.SocksPhase, socks.SocksEvent)))
def test_socks_goes_where_the_table_says(kind: type[Session], phase: socks.SocksPhase, event: socks.SocksEvent) -> None:
    moves(session_of(kind, False), socks.TRANSITIONS, phase, event)


def moves(session: Any, table: Any, phase: StrEnum, event: StrEnum) -> None:
    session.phase = phase
    if event in table[phase]:
        session._on(event)
        assert session.phase is table[phase][event]
        return
    with pytest.raises(IllegalEventError, match=f"{event.name} can't happen in the state {phase.name}") as raised:
        session._on(event)
    assert (raised.value.state, raised.value.event) == (phase, event)
    assert session.phase is phase


@pytest.mark.parametrize(
    ("table", "first"),
    [
        (http.TRANSITIONS, [http.HttpPhase.IDLE]),
        (http.STAGES, [http.Stage.AWAITED]),
        (socks.TRANSITIONS, [socks.SocksPhase.GREETING]),
    ],
)
def test_every_state_can_be_reached(table: Any, first: list[StrEnum]) -> None:
    reached = first
    for state in reached:
        reached += [following for following in table[state].values() if following not in reached]
    assert set(reached) == set(table)


@pytest.mark.parametrize("table", [http.TRANSITIONS, socks.TRANSITIONS])
def test_a_session_can_be_ended_in_every_phase_and_leaves_no_end(table: Any) -> None:
    for phase, row in table.items():
        ends = {following for following in row.values() if following.name == "CLOSED"}
        assert {following.name for following in ends} == {"CLOSED"}
        if phase.name in ("TUNNEL", "CLOSED"):
            assert set(row.values()) == ends


def test_a_row_with_a_column_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        transitions(http.Stage, {http.ResponsePart.END: (http.Stage.COMPLETE,)})
