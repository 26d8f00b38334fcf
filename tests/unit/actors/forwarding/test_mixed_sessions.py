"""`mixed`: the first byte of a client chooses the protocol, whose own session reads all of its bytes."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols.commands import CloseClient, Command, Report, Speak
from actors.forwarding.protocols.mixed import MixedSession, new_session, protocol_of
from tests.kit.http_conversation import POLICY
from tests.kit.tables import table

ARRIVED, LATER = 5.0, 6.5
BEGINNINGS = (
    b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
    b"\r\nCONNECT a.example:443 HTTP/1.1\r\nHost: a\r\n\r\nearly",
    b"\x04\x01\x00\x50\x7f\x00\x00\x01me\x00",
    b"\x04\x01\x00\x50\x00\x00\x00\x01me\x00a.example\x00",
    b"\x05\x01\x00\x05\x01\x00\x03\x09a.example\x00\x50",
    b"\x05\x02\x00\x02\x05\x03\x00\x01\x00\x00\x00\x00\x00\x00",
)


@table("first", range(256))
def test_one_byte_is_enough(first: int) -> None:
    assert protocol_of(first) == {4: "socks4", 5: "socks5"}.get(first, "http")


@st.composite
def conversations(draw: st.DrawFn) -> list[bytes]:
    """What a client sends, in pieces: something known, perhaps damaged, or any bytes at all."""
    sent = bytearray(draw(st.sampled_from(BEGINNINGS)))
    for at, value in draw(st.lists(st.tuples(st.integers(0, len(sent) - 1), st.integers(0, 255)), max_size=2)):
        sent[at] = value
    data = draw(st.one_of(st.just(bytes(sent)), st.binary(min_size=1, max_size=40)))
    cuts = sorted(draw(st.sets(st.integers(1, len(data)), max_size=len(data))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True) if start < end]


@given(conversations())
def test_the_session_that_follows_says_what_it_says_on_a_proxy_of_its_protocol_alone(pieces: list[bytes]) -> None:
    alone = new_session(protocol_of(pieces[0][0]), POLICY, ARRIVED)
    wanted = _all(alone, pieces)
    first = new_session("mixed", POLICY, ARRIVED)
    [speak] = first.receive_from_client(pieces[0], LATER)
    assert isinstance(speak, Speak)
    assert speak.data == pieces[0]
    follows = new_session(speak.protocol, POLICY, speak.started)
    assert _all(follows, [speak.data, *pieces[1:]]) == wanted
    assert repr(follows) == repr(alone)
    assert follows.deadline == alone.deadline


def _all(session: Any, pieces: list[bytes]) -> list[Command]:
    out: list[Command] = []
    for piece in pieces:
        if not session.reads_client:
            break
        out += session.receive_from_client(piece, LATER)
    return [command for command in out if not isinstance(command, Report)]


def test_a_client_that_sends_nothing_is_closed_without_a_word_when_its_time_is_over() -> None:
    session = MixedSession(POLICY, ARRIVED)
    assert session.deadline == ARRIVED + POLICY.handshake_timeout
    assert session.timed_out(session.deadline) == [CloseClient()]


def test_the_session_that_follows_knows_that_its_request_is_the_last() -> None:
    session = MixedSession(POLICY, ARRIVED)
    session.disable_keep_alive()
    assert session.receive_from_client(b"G", LATER) == [Speak("http", b"G", ARRIVED, True)]
