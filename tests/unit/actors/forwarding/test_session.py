"""The conversation on one client connection: bytes in, commands out; no socket is open here."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.protocols import failures
from actors.forwarding.protocols.commands import (
    Authorize,
    CloseClient,
    LeaveOrigin,
    Open,
    RelayToClient,
    RelayToOrigin,
    Report,
    Tunnel,
)
from actors.forwarding.protocols.http.session_ends import EMPTY_LINES_MAX
from actors.forwarding.protocols.http.states import HttpPhase
from actors.forwarding.protocols.state_machine import IllegalEventError
from tests.kit.http_conversation import GET, OK, Talk, exchange
from tests.kit.tables import table

# --- forward requests ---


def test_a_get_goes_to_the_authority_of_its_target_and_the_answer_comes_back() -> None:
    talk = exchange()
    assert talk.kinds == ["Open", "ToOrigin", "ToClient", "Report", "LeaveOrigin"]
    assert talk.out[0].target.host == "a.example"
    assert talk.to_origin == b"GET /x HTTP/1.1\r\nHost: a.example\r\nAccept: */*\r\nVia: 1.1 us\r\n\r\n"
    assert talk.to_client == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nVia: 1.1 us\r\n\r\nhello"
    assert talk.out[-1] == LeaveOrigin(reusable=True)
    assert talk.session.phase is HttpPhase.IDLE
    assert talk.report.status == 200
    assert talk.report.bytes_in == len(GET)
    assert talk.report.bytes_out == len(talk.to_client)


def test_one_byte_at_a_time_from_both_sides_gives_the_same() -> None:
    talk = Talk()
    talk.client(*[GET[i : i + 1] for i in range(len(GET))]).opened()
    talk.origin(*[OK[i : i + 1] for i in range(len(OK))])
    whole = exchange()
    assert (talk.to_origin, talk.to_client) == (whole.to_origin, whole.to_client)
    assert talk.session.phase is HttpPhase.IDLE


@given(st.lists(st.integers(1, 200), max_size=6))
def test_an_answer_split_anywhere_gives_the_same(cuts: list[int]) -> None:
    response = (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    borders = [0, *sorted({cut for cut in cuts if cut < len(response)}), len(response)]
    talk = Talk().client(GET).opened()
    talk.origin(*[response[a:b] for a, b in itertools.pairwise(borders)])
    head, _, body = talk.to_client.partition(b"HTTP/1.1 200 OK")[2].partition(b"\r\n\r\n")
    assert b"Transfer-Encoding: chunked" in head
    assert body.endswith(b"0\r\n\r\n")
    assert talk.session.phase is HttpPhase.IDLE


def test_pipelined_requests_are_answered_one_after_the_other() -> None:
    talk = Talk().client(GET + GET.replace(b"/x", b"/y"))
    assert len(talk.all(Open)) == 1
    talk.opened().origin(OK)
    assert len(talk.all(Open)) == 2
    talk.opened(reused=True).origin(OK)
    assert talk.to_client.count(b"hello") == 2
    assert b"GET /y " in talk.to_origin


def test_a_counted_body_passes_and_the_connection_is_a_fresh_one() -> None:
    post = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n\r\nhe"
    talk = Talk().client(post)
    assert talk.out[0].fresh
    talk.opened().client(b"llo").origin(OK)
    assert talk.to_origin.endswith(b"\r\n\r\nhello")
    assert talk.session.phase is HttpPhase.IDLE


def test_a_chunked_body_is_coded_anew_without_extensions_and_trailers() -> None:
    post = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    talk = Talk().client(post).opened().client(b"3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: x\r\n\r\n" + GET).origin(OK)
    assert talk.to_origin.startswith(b"POST / HTTP/1.1")
    assert b"\r\n\r\n5\r\nabcde\r\n0\r\n\r\n" in talk.to_origin
    assert len(talk.all(Open)) == 2


def test_a_request_whose_trailers_name_framing_is_400_and_the_origin_does_not_see_its_end() -> None:
    post = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n"
    talk = Talk().client(post).opened().client(b"3\r\nabc\r\n", b"0\r\nContent-Length: 7\r\n\r\n")
    assert talk.to_client.startswith(b"HTTP/1.1 400 ")
    assert talk.to_origin.endswith(b"3\r\nabc\r\n")
    assert talk.all(LeaveOrigin) == [LeaveOrigin(reusable=False)]
    assert isinstance(talk.out[-1], CloseClient)


def test_an_answer_whose_trailers_name_framing_is_cut() -> None:
    talk = Talk().client(GET).opened().origin(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
    talk.origin(b"0\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert talk.out[-1] == CloseClient(abort=True)
    assert not talk.to_client.endswith(b"0\r\n\r\n")
    assert talk.report.reason == "http_protocol_error"


def test_every_answer_of_its_own_has_a_date_and_one_of_an_origin_keeps_its_own() -> None:
    date = b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"

    def begin(data: bytes, **policy: Any) -> Talk:
        return Talk(date=lambda _now: date, **policy).client(data)

    connect = b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n"
    trace = b"TRACE http://a.example/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 0\r\n\r\n"
    for talk in (begin(b"nonsense\r\n\r\n"), begin(connect).opened(), begin(trace)):
        assert talk.to_client.partition(b"\r\n")[2].startswith(date)
        assert talk.to_client.count(b"Date:") == 1
    refused = begin(GET)
    refused.out += refused.session.failed(failures.OUT_OF_DESCRIPTORS, 0.0)
    assert refused.to_client.partition(b"\r\n")[2].startswith(date)
    assert b"Date" not in begin(GET).opened().origin(OK).to_client


def test_long_counted_bodies_are_left_to_the_kernel_in_both_directions() -> None:
    length = 10_000_000
    put = b"PUT http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\nabc" % length
    talk = Talk().client(put).opened()
    assert talk.out[-1] == RelayToOrigin(length - 3)
    assert not talk.session.reads_client
    assert talk.session.request_relayed(length - 3, 1.0, ended=False) == []
    talk.origin(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\nab" % length)
    assert talk.out[-1] == RelayToClient(length - 2)
    talk.out += talk.session.response_relayed(length - 2, 2.0, ended=False)
    assert talk.report.bytes_in == length + len(put) - 3
    assert talk.report.bytes_out == length + len(talk.to_client) - 2
    assert talk.session.phase is HttpPhase.IDLE


@table(
    ("request_head", "response", "delivered"),
    [
        (b"HEAD http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", b""),
        (GET, b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (GET, b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", b""),
        (GET, b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b""),
        (GET, b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK, b"hello"),
    ],
)
def test_answers_whose_end_is_known_keep_both_connections(
    request_head: bytes, response: bytes, delivered: bytes
) -> None:
    talk = exchange(request_head, response)
    assert talk.to_client.rpartition(b"\r\n\r\n")[2] == delivered
    assert talk.out[-1] == LeaveOrigin(reusable=True)
    assert talk.session.phase is HttpPhase.IDLE


def test_an_answer_that_ends_with_its_connection_is_delivered_and_ends_the_clients() -> None:
    talk = exchange(response=b"HTTP/1.1 200 OK\r\n\r\nhel")
    assert talk.out[-1] == RelayToClient(None)
    talk.out += talk.session.response_relayed(2, 0.0, ended=True)
    assert b"Connection: close" in talk.to_client
    assert talk.report.reason == ""
    assert talk.kinds[-2:] == ["LeaveOrigin", "CloseClient"]


@pytest.mark.parametrize(
    "response",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhel",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
    ],
)
def test_a_truncated_answer_is_never_passed_as_whole(response: bytes) -> None:
    talk = exchange(response=response).origin(b"")
    assert talk.out[-1] == CloseClient(abort=True)
    assert talk.report.reason == "http_response_incomplete"


def test_bytes_behind_an_answer_close_the_origins_connection() -> None:
    talk = exchange(response=OK + b"HTTP/1.1 200 OK\r\n\r\n")
    assert talk.out[-1] == LeaveOrigin(reusable=False)
    assert talk.to_client.count(b"200 OK") == 1


def test_http_1_0_clients_get_no_chunks_and_no_interim_answers() -> None:
    get = b"GET http://a.example/ HTTP/1.0\r\n\r\n"
    talk = exchange(
        get, b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n"
    )
    assert talk.to_client.endswith(b"\r\n\r\nhi")
    assert b"chunked" not in talk.to_client
    assert b"100" not in talk.to_client.partition(b"\r\n")[0]
    assert talk.out[-1] == CloseClient()


@pytest.mark.parametrize("name", [b"Connection", b"Proxy-Connection"])
def test_http_1_0_clients_may_not_stay_since_the_request_for_it_may_come_through_a_proxy_that_waits_for_the_end(
    name: bytes,
) -> None:
    talk = exchange(b"GET http://a.example/ HTTP/1.0\r\n" + name + b": Keep-Alive\r\n\r\n")
    assert b"Connection: close" in talk.to_client
    assert b"keep-alive" not in talk.to_client.lower()
    assert talk.out[-1] == CloseClient()


def test_an_origin_of_http_1_0_may_stay() -> None:
    talk = exchange(response=b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi")
    assert talk.out[-1] == LeaveOrigin(reusable=True)
    assert talk.session.phase is HttpPhase.IDLE


def test_an_error_ends_the_connection_of_an_http_1_0_client_that_asked_to_stay() -> None:
    talk = exchange(b"GET http://a.example/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", response=b"nonsense\r\n\r\n")
    assert b"Connection: close" in talk.to_client
    assert talk.out[-1] == CloseClient()


@pytest.mark.parametrize(
    ("talk", "why"),
    [
        (lambda: exchange(GET.replace(b"Accept", b"Connection: close\r\nAccept")), "the client wants it"),
        (lambda: exchange(keep_alive=False), "the proxy is set so"),
    ],
)
def test_the_clients_connection_ends_after_the_answer_when(talk: Any, why: str) -> None:
    ended = talk()
    assert b"Connection: close" in ended.to_client, why
    assert ended.out[-1] == CloseClient()


def test_an_early_answer_is_delivered_and_then_both_connections_end() -> None:
    post = b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 500\r\n\r\nabc"
    talk = exchange(post, b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
    assert talk.to_client.startswith(b"HTTP/1.1 413")
    assert talk.kinds[-2:] == ["LeaveOrigin", "CloseClient"]
    assert talk.out[-2] == LeaveOrigin(reusable=False)


def test_expect_and_its_interim_answer_pass() -> None:
    post = b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    talk = Talk().client(post).opened()
    assert b"Expect: 100-continue" in talk.to_origin
    talk.origin(b"HTTP/1.1 100 Continue\r\n\r\n")
    assert talk.to_client.startswith(b"HTTP/1.1 100 Continue")
    talk.client(b"hi").origin(OK)
    assert talk.session.phase is HttpPhase.IDLE


# --- reuse ---


def test_a_get_on_a_dead_reused_connection_is_sent_again_on_a_fresh_one() -> None:
    talk = Talk().client(GET).opened(reused=True).origin(b"")
    assert talk.kinds[-2:] == ["LeaveOrigin", "Open"]
    assert talk.out[-1].fresh
    talk.opened().origin(OK)
    assert talk.to_client.endswith(b"hello")


def test_a_request_that_is_sent_again_has_its_via_for_the_part_that_chooses_the_way() -> None:
    request = GET.replace(b"\r\n\r\n", b"\r\nVia: 1.1 before\r\n\r\n")
    talk = Talk().client(request).opened(reused=True).origin(b"")
    opened = [each for each in talk.out if type(each).__name__ == "Open"]
    assert [each.via for each in opened] == [b"1.1 before"] * 2


def test_a_fresh_connection_that_ends_without_an_answer_is_502() -> None:
    talk = Talk().client(GET).opened().origin(b"")
    assert talk.to_client.startswith(b"HTTP/1.1 502 ")
    assert b"Proxy-Status: proxyfleet; error=connection_terminated" in talk.to_client


# --- tunnels ---


def test_connect_answers_when_the_origin_is_there_and_early_bytes_are_delivered_once() -> None:
    talk = Talk().client(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n\x16\x03\x01")
    assert talk.kinds == ["Open"]
    talk.opened()
    assert talk.kinds == ["Open", "ToClient", "Tunnel"]
    assert talk.to_client.startswith(b"HTTP/1.1 200 ")
    assert talk.to_origin == b"\x16\x03\x01"
    assert talk.out[-1].report.url == "a.example:443"


@pytest.mark.parametrize(
    ("field", "status"),
    [(b"Content-Length: 0", None), (b"Content-Length: 1", 400), (b"Transfer-Encoding: chunked", 400)],
)
def test_connect_has_no_body(field: bytes, status: int | None) -> None:
    talk = Talk().client(b"CONNECT a.example:443 HTTP/1.1\r\nHost: a\r\n" + field + b"\r\n\r\n")
    assert (talk.report.status if status else None) == status


UPGRADE = b"GET http://a.example/ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n"


def test_upgrade_becomes_a_tunnel() -> None:
    talk = Talk().client(UPGRADE).opened().origin(SWITCH + b"\x81\x00")
    assert b"Upgrade: websocket\r\nConnection: upgrade\r\n" in talk.to_origin
    assert talk.to_client.endswith(b"\r\n\r\n\x81\x00")
    assert b"Upgrade: websocket" in talk.to_client
    assert isinstance(talk.out[-1], Tunnel)
    assert talk.out[-1].report.status == 101


def test_an_origin_that_switches_though_no_one_asked_is_502() -> None:
    talk = Talk().client(GET).opened().origin(SWITCH)
    assert talk.report.status == 502


def test_a_flood_of_interim_answers_is_502() -> None:
    talk = Talk().client(GET).opened().origin(b"HTTP/1.1 102 Processing\r\n\r\n" * 50)
    assert talk.report.reason == "http_protocol_error"


# --- refusals ---


@pytest.mark.parametrize(
    ("target", "host", "accept", "media"),
    [
        (b"http://a..b/", b"a..b", b"text/html", b"text/html"),
        (b"http://[::1/", b"a.example", b"text/html", b"text/html"),
        (b"http://a..b/", b"a..b", b"*/*", b"application/problem+json"),
        (b"http://a b/", b"a.example", b"text/html", b"application/problem+json"),
    ],
)
def test_a_browser_reads_a_page_about_a_bad_target_where_the_head_can_be_read(
    target: bytes, host: bytes, accept: bytes, media: bytes
) -> None:
    talk = Talk().client(b"GET %b HTTP/1.1\r\nHost: %b\r\nAccept: %b\r\n\r\n" % (target, host, accept))
    assert talk.to_client.startswith(b"HTTP/1.1 400 ")
    assert b"\r\nContent-Type: %b" % media in talk.to_client
    assert talk.out[-1] == CloseClient()


def test_a_head_for_a_bad_target_gets_no_body() -> None:
    talk = Talk().client(b"HEAD http://a..b/ HTTP/1.1\r\nHost: a..b\r\n\r\n")
    assert (talk.report.status, talk.to_client[-4:]) == (400, b"\r\n\r\n")


def test_what_is_not_http_is_400_and_closed() -> None:
    talk = Talk().client(b"\x05\x01\x00\r\n\r\n")
    assert talk.to_client.startswith(b"HTTP/1.1 400 ")
    assert b"Proxy-Status: proxyfleet; error=http_request_error" in talk.to_client
    assert talk.out[-1] == CloseClient()
    with pytest.raises(IllegalEventError):
        talk.session.receive_from_client(GET, 0.0)
    assert "Open" not in talk.kinds


def test_a_client_that_signs_a_connection_in_is_closed_with_it() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)
    signing = GET.replace(b"Accept", b"Authorization: NTLM x\r\nAccept")
    for request, closed in ((signing, True), (GET, False)):
        talk = Talk().client(request).opened().origin(closing)
        assert (b"\r\nConnection: close" in talk.to_client, talk.out[-1] == CloseClient()) == (closed, closed)


def test_a_request_that_has_passed_here_is_a_loop() -> None:
    talk = Talk().client(GET.replace(b"Accept", b"Via: 1.1 x, 1.1 us (c)\r\nAccept"))
    assert talk.report.reason == "proxy_loop_detected"
    assert Talk().client(GET.replace(b"Accept", b"Via: 1.1 us2\r\nAccept")).kinds == ["Open"]


def test_credentials_are_asked_for_and_never_reach_the_origin() -> None:
    talk = Talk(wants_credentials=True).client(GET)
    assert [each[:2] for each in talk.out if isinstance(each, Authorize)] == [(None, None)]
    talk.out += talk.session.authorized(None, 0.0)
    assert b"HTTP/1.1 407 " in talk.to_client
    assert b'Proxy-Authenticate: Basic realm="proxyfleet"' in talk.to_client
    talk.client(GET.replace(b"Accept", b"Proxy-Authorization: Basic OnB3\r\nAccept"))
    assert [each[:2] for each in talk.out if isinstance(each, Authorize)][-1] == (None, None), "a user has a name"
    talk.out += talk.session.authorized(None, 0.0)
    talk.client(GET.replace(b"Accept", b"Proxy-Authorization: Basic eDp5\r\nAccept"))
    asked = talk.out[-1]
    assert isinstance(asked, Authorize)
    assert asked[:2] == ("x", b"y")
    talk.out += talk.session.authorized("x", 0.0)
    talk.opened().origin(OK)
    assert b"Basic" not in talk.to_origin
    assert talk.all(Report)[-1].user == "x"


@pytest.mark.parametrize(
    "failure", [failures.connection_refused("x"), failures.dns_failed("x"), failures.prohibited("x")]
)
def test_a_failure_to_connect_is_reported_and_the_client_may_go_on(failure: failures.Failure) -> None:
    talk = Talk().client(GET)
    talk.out += talk.session.failed(failure, 0.0)
    assert f"error={failure.kind}".encode() in talk.to_client
    assert talk.report.reason == failure.kind
    assert talk.session.phase is HttpPhase.IDLE


def test_a_failed_request_whose_body_is_unread_ends_the_connection() -> None:
    talk = Talk().client(b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n")
    talk.out += talk.session.failed(failures.connection_refused("x"), 0.0)
    assert talk.out[-1] == CloseClient()


def test_the_answer_of_an_origin_that_speaks_no_http_is_502() -> None:
    talk = Talk().client(GET).opened().origin(b"220 mail.example ESMTP\r\n\r\n")
    assert talk.report.status == 502
    assert talk.report.reason == "http_protocol_error"


# --- time ---


def test_deadlines_follow_the_phases() -> None:
    talk = Talk()
    assert talk.session.deadline == 10
    talk.now = 5
    talk.client(GET[:10])
    talk.now = 9
    talk.client(GET[10:20])
    assert talk.session.deadline == 15  # absolute for a head, however it trickles
    talk.client(GET[20:])
    assert talk.session.deadline == 39
    talk.now = 20
    talk.opened()
    talk.now = 21
    talk.origin(OK[:-1])
    assert talk.session.deadline == 51
    talk.origin(OK[-1:])
    assert talk.session.deadline == 81


def test_half_a_head_in_time_is_408_and_closed() -> None:
    talk = Talk().client(GET[:20])
    talk.out += talk.session.timed_out(10.0)
    assert talk.to_client.startswith(b"HTTP/1.1 408 ")


def test_an_idle_client_is_closed_without_a_word() -> None:
    talk = exchange()
    before = talk.to_client
    talk.out += talk.session.timed_out(61.0)
    assert talk.to_client == before
    assert talk.out[-1] == CloseClient()


@pytest.mark.parametrize(("so_far", "status"), [(b"", 504), (b"HTTP/1.1 200", 504)])
def test_an_origin_that_is_silent_is_504(so_far: bytes, status: int) -> None:
    talk = Talk().client(GET).opened()
    if so_far:
        talk.origin(so_far)
    talk.out += talk.session.timed_out(31.0)
    assert talk.report.status == status
    assert talk.report.reason == "http_response_timeout"


def test_an_answer_that_stalls_is_cut() -> None:
    talk = exchange(response=OK[:-1])
    talk.out += talk.session.timed_out(31.0)
    assert talk.out[-1] == CloseClient(abort=True)


# --- ends of the client ---


def test_a_client_that_half_closes_behind_its_request_gets_its_answer() -> None:
    talk = Talk().client(GET, b"").opened().origin(OK)
    assert talk.to_client.endswith(b"hello")
    assert talk.out[-1] == CloseClient()


def test_a_client_that_ends_within_its_body_is_given_up() -> None:
    talk = Talk().client(b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab").opened()
    talk.client(b"")
    assert talk.out[-1] == CloseClient(abort=True)
    assert LeaveOrigin(reusable=False) in talk.out


def test_a_client_that_ends_within_its_body_before_the_origin_is_there_is_given_up() -> None:
    talk = Talk().client(b"POST http://a.example/ HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nab", b"").opened()
    assert talk.out[-1] == CloseClient(abort=True)


@pytest.mark.parametrize("pieces", [(b"\r\n" + GET,), (b"\r\n", GET), (b"\r", b"\n" + GET), (b"\r", b"\n", GET)])
def test_an_empty_line_before_a_request_is_passed_over_however_it_comes(pieces: tuple[bytes, ...]) -> None:
    assert Talk().client(*pieces).kinds == ["Open"]
    after = exchange()
    assert after.client(*pieces).kinds[-1] == "Open"


@pytest.mark.parametrize(
    ("status", "field"),
    [
        (b"204 No Content", b"Content-Length: 5"),
        (b"103 Early Hints", b"Content-Length: 5"),
        (b"304 Not Modified", b"Transfer-Encoding: chunked"),
    ],
)
def test_answers_that_can_have_no_body_say_nothing_of_one(status: bytes, field: bytes) -> None:
    talk = Talk().client(GET).opened().origin(b"HTTP/1.1 " + status + b"\r\n" + field + b"\r\n\r\n")
    assert talk.to_client.startswith(b"HTTP/1.1 " + status)
    assert field not in talk.to_client
    if talk.session.idle:  # a body that isn't one may be on its way: no other client gets the connection
        assert talk.out[-1] == LeaveOrigin(reusable=False)


@pytest.mark.parametrize("status", [b"204 No Content", b"103 Early Hints", b"100 Continue"])
def test_a_coding_where_there_is_no_content_is_502(status: bytes) -> None:
    response = b"HTTP/1.1 " + status + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert exchange(response=response).report.status == 502


def test_an_upgrade_is_not_asked_for_behind_a_body() -> None:
    upgrade = b"Connection: upgrade\r\nUpgrade: websocket\r\n"
    post = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n" + upgrade + b"Content-Length: 2\r\n\r\nhi"
    talk = Talk().client(post).opened()
    assert b"pgrade" not in talk.to_origin
    talk.origin(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
    assert talk.report.status == 502


EMPTY = b"\r\n" * EMPTY_LINES_MAX


@pytest.mark.parametrize("pieces", [(EMPTY + GET,), (b"\r\n",) * EMPTY_LINES_MAX + (GET,), (EMPTY[:-1], b"\n" + GET)])
def test_a_handful_of_empty_lines_before_a_request_is_passed_over_and_more_are_400(pieces: tuple[bytes, ...]) -> None:
    assert Talk().client(*pieces).kinds == ["Open"]
    assert exchange().client(*pieces).kinds[-1] == "Open"
    assert Talk().client(b"\r\n", *pieces).report.status == 400


def test_empty_lines_between_pipelined_requests_are_counted_for_each() -> None:
    talk = Talk().client((EMPTY + GET) * 3)
    for _ in range(3):
        talk.opened().origin(OK)
    assert [report.status for report in talk.all(Report)] == [200, 200, 200]


@pytest.mark.parametrize("offered", [b"h2c", b"H2C , websocket", b"websocket, h2c", b",h2c/1,"])
def test_an_upgrade_to_http_2_in_the_clear_is_not_passed_on_and_its_settings_never(offered: bytes) -> None:
    lines = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: " + offered + b"\r\nHTTP2-Settings: AAMA\r\n\r\n"
    talk = Talk().client(GET[:-2] + lines).opened()
    assert b"h2c" not in talk.to_origin.lower()
    assert b"http2" not in talk.to_origin.lower()
    assert (b"\r\nUpgrade: websocket\r\nConnection: upgrade\r\n" in talk.to_origin) == (b"websocket" in offered)
    talk.origin(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    assert talk.report.status == 502


def test_settings_of_http_2_that_connection_does_not_name_are_not_passed_on_either() -> None:
    assert b"HTTP2" not in Talk().client(GET[:-2] + b"HTTP2-Settings: AAMA\r\n\r\n").opened().to_origin


@pytest.mark.parametrize("status", [b"600", b"999", b"099"])
def test_an_answer_with_a_status_that_does_not_exist_is_502(status: bytes) -> None:
    talk = exchange(response=OK.replace(b"200", status))
    assert (talk.report.status, talk.report.reason) == (502, "http_protocol_error")


def test_trace_does_not_go_to_an_upstream_with_our_credentials() -> None:
    talk = Talk().client(b"TRACE http://a.example/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3\r\n\r\n")
    talk.out += talk.session.opened(False, 0.0, None, b"Proxy-Authorization: Basic dTpw\r\n")
    assert talk.to_origin == b""
    assert talk.to_client.startswith(b"HTTP/1.1 405 ")
    assert b"\r\nAllow: GET" in talk.to_client
    assert talk.kinds[-2:] == ["LeaveOrigin", "CloseClient"]
    open_upstream = Talk().client(b"TRACE http://a.example/ HTTP/1.1\r\nHost: a\r\n\r\n")
    open_upstream.out += open_upstream.session.opened(False, 0.0, None, b"")
    assert open_upstream.to_origin.startswith(b"TRACE http://a.example/ HTTP/1.1\r\n")


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PROPFIND"])
def test_max_forwards_never_gets_negative(method: bytes) -> None:
    head = method + b" http://a.example/ HTTP/1.1\r\nHost: a\r\nMax-Forwards: %d\r\n\r\n"
    assert b"Max-Forwards" not in Talk().client(head % 0).opened().to_origin
    assert b"\r\nMax-Forwards: 0\r\n" in Talk().client(head % 1).opened().to_origin


def test_requests_behind_one_that_is_refused_are_not_served() -> None:
    talk = Talk().client(GET * 3)
    talk.out += talk.session.failed(failures.prohibited("no"), 0.0)
    assert talk.kinds == ["Open", "ToClient", "Report", "CloseClient"]
    assert b"Connection: close" in talk.to_client


def test_an_answer_that_ends_with_a_broken_connection_is_cut() -> None:
    talk = exchange(response=b"HTTP/1.1 200 OK\r\n\r\nhel")
    talk.out += talk.session.origin_disconnected(0.0)
    assert talk.out[-1] == CloseClient(abort=True)


def test_what_moves_towards_the_client_is_no_idleness_but_a_head_has_its_time() -> None:
    talk = exchange(response=OK[:-1])
    talk.session.note_progress(25.0)
    assert talk.session.deadline == 55
    half = Talk().client(GET[:10])
    half.session.note_progress(5.0)
    assert half.session.deadline == 10


_METHODS = st.sampled_from([b"GET", b"HEAD", b"POST", b"CONNECT"])


@given(_METHODS, st.binary(max_size=80), st.binary(max_size=120), st.integers(0, 80))
def test_no_bytes_of_either_side_break_the_machine(method: bytes, early: bytes, response: bytes, cut: int) -> None:
    target = b"a.example:1" if method == b"CONNECT" else b"http://a.example/"
    talk = Talk().client(method + b" " + target + b" HTTP/1.1\r\nHost: a\r\n\r\n" + early[:cut], early[cut:])
    if talk.session.phase is HttpPhase.OPEN:
        talk.opened()
    for piece in (response[:cut], response[cut:], b""):
        if talk.session.reads_origin:
            talk.origin(piece)
    assert talk.session.phase in HttpPhase


def test_wrong_credentials_are_reported_with_the_name_that_was_tried_and_none_without() -> None:
    wrong = Talk(wants_credentials=True).client(GET[:-2] + b"Proxy-Authorization: Basic YWxpY2U6bm8=\r\n\r\n")
    wrong.out += wrong.session.authorized(None, 0.0)
    none = Talk(wants_credentials=True).client(GET)
    none.out += none.session.authorized(None, 0.0)
    assert [(each.report.status, each.report.user, each.report.reason) for each in (wrong, none)] == [
        (407, "alice", "http_request_denied"),
        (407, "", "http_request_denied"),
    ]
    assert [each.report.detail for each in (wrong, none)] == [
        failures.CREDENTIALS_WRONG.detail,
        failures.CREDENTIALS_WANTED.detail,
    ]
