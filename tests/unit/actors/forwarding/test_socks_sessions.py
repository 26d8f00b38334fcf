"""SOCKS conversations: bytes in, commands out; no socket is open here."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    Associate,
    Authorize,
    CloseClient,
    Listen,
    Open,
    RelayDatagrams,
    Report,
    Tunnel,
)
from actors.forwarding.protocols.failures import Failure
from actors.forwarding.protocols.session import SessionConfig
from actors.forwarding.protocols.socks.session import BUFFERED_MAX, SocksSession
from actors.forwarding.protocols.socks.states import SocksPhase
from actors.forwarding.protocols.socks.v4 import Socks4Session
from actors.forwarding.protocols.socks.v5 import Socks5Session
from tests.kit.conversation import Conversation
from tests.kit.tables import table

POLICY = SessionConfig(timeout=30, handshake_timeout=10)
LOCAL = ("192.0.2.7", 4660)
BOUND = b"\x01\xc0\x00\x02\x07\x12\x34"

NO_AUTH = b"\x05\x01\x00"
WITH_PASSWORD = b"\x05\x01\x02"
ALICE = b"\x01\x05alice\x02pw"
V4_ADDRESS = b"\x01\x5d\xb8\xd8\x22"
V6_ADDRESS = b"\x04" + bytes(range(32, 48))
NAME = b"\x03\x09a.example"
PORT = b"\x01\xbb"
CONNECT = b"\x05\x01\x00" + V4_ADDRESS + PORT
V4_CONNECT = b"\x04\x01\x01\xbb\x5d\xb8\xd8\x22alice\0"
V4A_CONNECT = b"\x04\x01\x01\xbb\0\0\0\x05alice\0a.example\0"
V4_GRANTED = b"\0\x5a\x12\x34\xc0\0\x02\x07"
V4_REJECTED = b"\0\x5b\0\0\0\0\0\0"


class Talk(Conversation):
    def __init__(self, version: int, **policy: Any) -> None:
        kind: type[SocksSession] = Socks5Session if version == 5 else Socks4Session
        self.session = kind(replace(POLICY, **policy), 0.0)  # type: ignore[call-arg]
        super().__init__(self.session)

    def admitted(self, user: str | None = "alice") -> Talk:
        self.out += self.session.authorized(user, self.now)
        return self

    def opened(self, address: tuple[str, int] = LOCAL) -> Talk:
        self.out += self.session.opened(False, self.now, address)
        return self

    def failed(self, failure: Failure) -> Talk:
        self.out += self.session.failed(failure, self.now)
        return self

    @property
    def report(self) -> Report:
        (only,) = [*self.all(Report), *(command.report for command in self.all(Tunnel))]
        assert isinstance(only, Report)
        return only


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    borders = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(borders) if a < b]


# --- whole conversations ---


def test_v5_from_greeting_over_credentials_to_the_tunnel() -> None:
    talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD)
    assert talk.to_client == b"\x05\x02"
    talk.client(ALICE)
    assert talk.all(Authorize) == [Authorize("alice", b"pw")]
    assert talk.session.authorizing
    talk.admitted()
    assert talk.to_client == b"\x05\x02\x01\x00"
    talk.client(CONNECT)
    (question,) = talk.all(Open)
    assert (question.target.host, question.target.port, question.fresh) == ("93.184.216.34", 443, True)
    assert question.with_address
    talk.now = 1.5
    talk.opened()
    assert talk.to_client == b"\x05\x02\x01\x00\x05\x00\x00" + BOUND
    assert talk.session.phase is SocksPhase.TUNNEL
    report = talk.report
    assert (report.method, report.url, report.status, report.user) == (b"CONNECT", "93.184.216.34:443", 200, "alice")
    assert (report.started, report.responded) == (0.0, 1.5)
    assert report.bytes_in == len(WITH_PASSWORD + ALICE + CONNECT)
    assert report.bytes_out == len(talk.to_client)


def test_v4_from_request_to_the_tunnel() -> None:
    talk = Talk(4).client(V4_CONNECT)
    assert talk.kinds == ["Open"]
    assert talk.out[0].target.text == b"93.184.216.34:443"  # type: ignore[union-attr]
    talk.opened()
    assert talk.kinds == ["Open", "ToClient", "Tunnel"]
    assert talk.to_client == V4_GRANTED
    assert talk.report.user == ""  # a name that was not checked is not recorded


def test_v4_asks_for_its_userid_and_no_password() -> None:
    talk = Talk(4, wants_credentials=True).client(V4A_CONNECT)
    assert [each[:2] for each in talk.all(Authorize)] == [("alice", None)]
    talk.admitted().opened()
    assert talk.kinds == ["Authorize", "Open", "ToClient", "Tunnel"]
    assert talk.report.user == "alice"


@table(
    ("address", "host", "literal"),
    [
        (V4_ADDRESS, "93.184.216.34", True),
        (V6_ADDRESS, "2021:2223:2425:2627:2829:2a2b:2c2d:2e2f", True),
        (NAME, "a.example", False),
        (b"\x03\x02AB", "ab", False),
        (b"\x03\x09127.0.0.1", "127.0.0.1", True),
        (b"\x03\x03::1", "::1", True),
    ],
)
def test_v5_reads_every_type_of_address(address: bytes, host: str, literal: bool) -> None:
    talk = Talk(5).client(NO_AUTH + b"\x05\x01\x00" + address + PORT)
    (question,) = talk.all(Open)
    assert (question.target.host, question.target.port, question.target.literal) == (host, 443, literal)


def test_v4a_leaves_the_name_to_the_proxy() -> None:
    talk = Talk(4).client(V4A_CONNECT)
    assert talk.out[0].target.text == b"a.example:443"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("version", "handshake"), [(5, NO_AUTH + CONNECT), (5, NO_AUTH + b"\x05\x01\x00" + NAME + PORT), (4, V4A_CONNECT)]
)
def test_one_byte_at_a_time_gives_the_same_and_early_data_is_delivered_once(version: int, handshake: bytes) -> None:
    whole = handshake + b"early\0data"
    talk = Talk(version).client(*[whole[i : i + 1] for i in range(len(whole))])
    assert talk.to_origin == b""
    talk.opened()
    assert talk.to_origin == b"early\0data"
    assert talk.kinds[-2:] == ["ToClient", "Tunnel"]
    assert talk.report.bytes_in == len(whole)


@given(st.lists(st.integers(1, 60), max_size=8))
def test_v5_split_anywhere_gives_the_same(cuts: list[int]) -> None:
    talk = Talk(5, wants_credentials=True)
    for piece in pieces(WITH_PASSWORD + ALICE + CONNECT + b"early", cuts):
        talk.client(piece)
        if talk.session.authorizing:
            talk.admitted()
    talk.opened()
    assert talk.to_client == b"\x05\x02\x01\x00\x05\x00\x00" + BOUND
    assert talk.to_origin == b"early"


def test_credentials_and_request_that_come_at_once_are_taken_in_turn() -> None:
    talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD + ALICE + CONNECT + b"x")
    assert talk.kinds == ["ToClient", "Authorize"]
    talk.admitted()
    assert talk.kinds == ["ToClient", "Authorize", "ToClient", "Open"]


def test_a_half_close_behind_the_request_is_left_to_the_tunnel() -> None:
    talk = Talk(5).client(NO_AUTH + CONNECT + b"all", b"")
    assert not talk.session.reads_client
    talk.opened()
    assert talk.to_origin == b"all"


def test_a_half_close_while_credentials_are_checked_ends_nothing_that_is_there_whole() -> None:
    talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD + ALICE + CONNECT + b"all", b"")
    assert not talk.session.closed
    talk.admitted().opened()
    assert talk.to_origin == b"all"
    talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD + ALICE + CONNECT[:4], b"").admitted()
    assert talk.out[-1] == CloseClient()
    for begun in (b"\x05\x02\x00", b"\x05\x03\x00"):
        talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD + ALICE + begun + V4_ADDRESS + PORT, b"").admitted()
        assert talk.out[-1] == CloseClient(abort=True)
        assert not talk.all(Listen) + talk.all(Associate)
        assert talk.report.reason == "connection_terminated"


def test_what_is_held_behind_a_request_is_bounded() -> None:
    talk = Talk(5).client(NO_AUTH + CONNECT)
    assert talk.session.reads_client
    talk.client(b"x" * (BUFFERED_MAX + 1))
    assert not talk.session.reads_client


# --- refusals ---

_FAILURES = [
    (failures.prohibited("no"), 2, 403),
    (Failure(403, "http_request_denied", "no"), 2, 403),
    (failures.unroutable("no"), 3, 502),
    (failures.host_unreachable("no"), 4, 502),
    (failures.dns_failed("no"), 4, 502),
    (failures.dns_unanswered("no.example", "it is silent", True), 4, 504),
    (failures.connection_refused("no"), 5, 502),
    (failures.connection_timed_out("no"), 6, 504),
    (failures.connection_lost("no"), 1, 502),
    (failures.OUT_OF_DESCRIPTORS, 1, 503),
]


@table(("failure", "code", "status"), _FAILURES, ids=lambda value: getattr(value, "kind", value))
def test_a_failure_has_its_reply_and_its_record(failure: Failure, code: int, status: int) -> None:
    talk = Talk(5).client(NO_AUTH + CONNECT).failed(failure)
    assert talk.to_client[2:] == bytes((5, code, 0, 1, 0, 0, 0, 0, 0, 0))
    assert talk.kinds[-2:] == ["Report", "CloseClient"]
    assert (talk.report.status, talk.report.reason) == (status, failure.kind)
    assert talk.session.closed
    talk = Talk(4).client(V4_CONNECT).failed(failure)
    assert talk.to_client == V4_REJECTED
    assert (talk.report.status, talk.report.reason) == (status, failure.kind)


_GENERAL = b"\x05\x01\x00\x01\0\0\0\0\0\0"


@table(
    ("sent", "response", "status"),
    [
        (b"\x04", b"", 400),  # another version
        (b"GET / HTTP/1.1\r\n\r\n", b"", 400),
        (b"\x05\x00", b"\x05\xff", 407),  # no methods at all
        (b"\x05\x02\x01\x80", b"\x05\xff", 407),  # none that is known
        (WITH_PASSWORD, b"\x05\xff", 407),  # credentials that are not wanted
        (NO_AUTH + b"\x04\x01\x00\x01", b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x01" + V4_ADDRESS + PORT, b"\x05\x00" + _GENERAL, 400),  # reserved octet
        (NO_AUTH + b"\x05\x04\x00" + V4_ADDRESS + PORT, b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0", 400),
        (NO_AUTH + b"\x05\x00\x00" + V4_ADDRESS + PORT, b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0", 400),
        (NO_AUTH + b"\x05\x01\x00\x02", b"\x05\x00\x05\x08\x00\x01\0\0\0\0\0\0", 400),
        (NO_AUTH + b"\x05\x01\x00" + V4_ADDRESS + b"\0\0", b"\x05\x00" + _GENERAL, 400),  # port 0
        (NO_AUTH + b"\x05\x01\x00\x03\x00" + PORT, b"\x05\x00" + _GENERAL, 400),  # an empty name
        (NO_AUTH + b"\x05\x01\x00\x03\x05127.1" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x0a2130706433" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x040x7f" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x03a\0b" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x03a b" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x04a..b" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x05[::1]" + PORT, b"\x05\x00" + _GENERAL, 400),
        (NO_AUTH + b"\x05\x01\x00\x03\x05::1%1" + PORT, b"\x05\x00" + _GENERAL, 400),
    ],
)
def test_v5_refuses_what_is_not_right(sent: bytes, response: bytes, status: int) -> None:
    for talk in (Talk(5).client(sent), Talk(5).client(*[sent[i : i + 1] for i in range(len(sent))])):
        assert talk.to_client == response
        assert not talk.all(Open)
        assert talk.session.closed
        assert talk.out[-1] == CloseClient()
        assert talk.report.status == status


@pytest.mark.parametrize(
    "sent", [b"\x02", b"\x01\x00\x01x", b"\x01\x01x\x00", b"\x01\x02\xff\xfe\x01x"], ids=["version", "u", "p", "utf-8"]
)
def test_v5_refuses_credentials_that_can_not_be_read_with_status_1(sent: bytes) -> None:
    talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD + sent)
    assert talk.to_client == b"\x05\x02\x01\x01"
    assert talk.session.closed
    assert not talk.all(Authorize)


def test_v5_tells_bad_credentials_with_status_1_and_closes() -> None:
    talk = Talk(5, wants_credentials=True).client(WITH_PASSWORD + ALICE + CONNECT).admitted(None)
    assert talk.to_client == b"\x05\x02\x01\x01"
    assert (talk.report.status, talk.report.reason) == (407, "http_request_denied")
    assert talk.out[-1] == CloseClient()
    assert not talk.all(Open)


def test_v5_that_wants_credentials_takes_no_one_without() -> None:
    talk = Talk(5, wants_credentials=True).client(NO_AUTH)
    assert talk.to_client == b"\x05\xff"
    assert talk.report.status == 407


@table(
    ("sent", "response"),
    [
        (b"\x05", b""),
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\x04\x03\x01\xbb\x01\x02\x03\x04\0", V4_REJECTED),
        (b"\x04\x01\0\0\x01\x02\x03\x04\0", V4_REJECTED),
        (b"\x04\x01\x01\xbb\0\0\0\x01\0\0", V4_REJECTED),
        (b"\x04\x01\x01\xbb\0\0\0\x01\x00127.1\0", V4_REJECTED),
        (b"\x04\x01\x01\xbb\x01\x02\x03\x04" + b"u" * 513, V4_REJECTED),
        (b"\x04\x01\x01\xbb\0\0\0\x01\0" + b"n" * 256, V4_REJECTED),
    ],
)
def test_v4_refuses_what_is_not_right(sent: bytes, response: bytes) -> None:
    for talk in (Talk(4).client(sent), Talk(4).client(*[sent[i : i + 1] for i in range(len(sent))])):
        assert talk.to_client == response
        assert not talk.all(Open)
        assert talk.report.status == 400
        assert talk.out[-1] == CloseClient()


@pytest.mark.parametrize("userid", [b"", b"\xff\xfe"])
def test_v4_without_a_userid_that_can_be_read_has_no_user(userid: bytes) -> None:
    talk = Talk(4, wants_credentials=True).client(b"\x04\x01\x01\xbb\x01\x02\x03\x04" + userid + b"\0")
    assert [each[:2] for each in talk.all(Authorize)] == [(None, None)]
    talk.admitted(None)
    assert talk.to_client == V4_REJECTED
    assert (talk.report.status, talk.report.url) == (407, "1.2.3.4:443")


@given(st.binary(max_size=600), st.sampled_from([4, 5]), st.booleans(), st.lists(st.integers(1, 600), max_size=4))
def test_garbage_is_never_more_than_a_refusal_and_read_alike_however_it_is_split(
    data: bytes, version: int, wants_credentials: bool, cuts: list[int]
) -> None:
    talks = []
    for parts in ([data], pieces(data, cuts)):
        talk = Talk(version, wants_credentials=wants_credentials)
        for piece in parts:
            if piece and talk.session.reads_client and not talk.session.closed:
                talk.client(piece)
            if talk.session.authorizing:
                talk.admitted()
        talks.append(talk)
    assert talks[0].to_client == talks[1].to_client
    assert talks[0].all(Open) == talks[1].all(Open)
    assert talks[0].session.phase is talks[1].session.phase


# --- time ---


def test_the_handshake_has_one_deadline_whatever_comes_meanwhile() -> None:
    talk = Talk(5)
    talk.now = 9.0
    talk.client(NO_AUTH, CONNECT[:5])
    assert talk.session.deadline == 10.0
    talk.out += talk.session.timed_out(10.0)
    assert talk.to_client == b"\x05\x00"
    assert talk.report.status == 408


def test_who_says_nothing_is_closed_without_a_record() -> None:
    talk = Talk(5)
    assert talk.session.idle
    assert talk.session.timed_out(10.0) == [CloseClient()]


@pytest.mark.parametrize(
    ("version", "request_bytes", "response"),
    [(5, NO_AUTH + CONNECT, b"\x05\x00\x05\x06\x00\x01\0\0\0\0\0\0"), (4, V4_CONNECT, V4_REJECTED)],
)
def test_a_target_that_is_silent_is_a_time_out(version: int, request_bytes: bytes, response: bytes) -> None:
    talk = Talk(version)
    talk.now = 5.0
    talk.client(request_bytes)
    assert talk.session.deadline == 35.0
    talk.out += talk.session.timed_out(35.0)
    assert talk.to_client == response
    assert (talk.report.status, talk.report.reason) == (504, "connection_timeout")


def test_the_end_of_the_client_in_the_handshake_is_no_failure() -> None:
    for sent in (b"", NO_AUTH, NO_AUTH + CONNECT[:6]):
        talk = Talk(5).client(*([sent] if sent else []), b"")
        assert talk.out[-1] == CloseClient()
        assert not talk.all(Report)


def test_a_client_that_breaks_off_while_its_target_is_dialled_is_reported() -> None:
    talk = Talk(5).client(NO_AUTH + CONNECT)
    talk.out += talk.session.client_disconnected(1.0)
    assert talk.out[-1] == CloseClient(abort=True)
    assert talk.report.reason == "connection_terminated"
    assert talk.session.abort("again", 2.0) == []


# --- BIND and UDP ASSOCIATE ---


@pytest.mark.parametrize(
    ("version", "request_bytes", "granted"),
    [
        (5, NO_AUTH + b"\x05\x02\x00" + V4_ADDRESS + PORT, b"\x05\x00\x00" + BOUND),
        (4, b"\x04\x02\x01\xbb\x5d\xb8\xd8\x22alice\0", V4_GRANTED),
    ],
)
def test_bind_has_two_replies_and_then_a_tunnel(version: int, request_bytes: bytes, granted: bytes) -> None:
    talk = Talk(version).client(request_bytes)
    (listen,) = talk.all(Listen)
    assert listen.target.host == "93.184.216.34"
    before = len(talk.to_client)
    talk.now = 3.0
    talk.opened()
    assert talk.to_client[before:] == granted
    assert talk.session.opening
    assert talk.session.deadline == 33.0
    talk.opened()
    assert talk.to_client[before:] == granted * 2
    assert talk.kinds[-1] == "Tunnel"
    assert talk.report.method == b"BIND"


def test_bind_without_a_peer_in_time_is_a_time_out() -> None:
    talk = Talk(5).client(NO_AUTH + b"\x05\x02\x00" + V4_ADDRESS + PORT).opened()
    talk.out += talk.session.timed_out(33.0)
    assert talk.to_client[12:] == b"\x05\x06\x00\x01\0\0\0\0\0\0"


def test_bind_ends_with_the_control_connection() -> None:
    talk = Talk(5).client(NO_AUTH + b"\x05\x02\x00" + V4_ADDRESS + PORT).opened().client(b"")
    assert talk.out[-1] == CloseClient(abort=True)
    assert talk.report.reason == "connection_terminated"


def test_udp_associate_is_answered_with_the_relays_address_and_handed_over() -> None:
    talk = Talk(5).client(NO_AUTH + b"\x05\x03\x00\x01\0\0\0\0\x00\x35")
    assert talk.all(Associate) == [Associate()]
    talk.opened()
    assert talk.to_client == b"\x05\x00\x05\x00\x00" + BOUND
    (relay,) = talk.all(RelayDatagrams)
    assert (relay.client.host, relay.client.port) == ("0.0.0.0", 53)
    assert relay.report.method == b"UDP"


@pytest.mark.parametrize("name", [b"0", b"", b"a host"])
def test_udp_associate_uses_no_more_than_the_port_of_where_datagrams_will_come_from(name: bytes) -> None:
    written = b"\x03" + bytes([len(name)]) + name
    (relay,) = Talk(5).client(NO_AUTH + b"\x05\x03\x00" + written + b"\x00\x35").opened().all(RelayDatagrams)
    assert (relay.client.host, relay.client.port) == ("0.0.0.0", 53)


def test_v4_has_no_udp() -> None:
    assert Talk(4).client(b"\x04\x03").to_client == V4_REJECTED
