"""Which responses are an upstream's own, and which requests may be sent to another one after them."""

from __future__ import annotations

import time

import pytest

from actors.forwarding.protocols.commands import Command, UpstreamRefused, UpstreamResponded
from actors.forwarding.protocols.failures import AskAnotherUpstream, Refused, UpstreamRefusesUs
from actors.forwarding.protocols.http.head_parser import ResponseHead, parse_request, parse_response
from actors.forwarding.protocols.http.upstream_exchange import (
    UPSTREAMS_TRIED,
    UpstreamExchange,
    is_own,
    names_target,
    retry_after,
)
from tests.kit.tables import table


def response(status: int, *fields: str) -> ResponseHead:
    lines = "".join(f"{field}\r\n" for field in fields)
    return parse_response(f"HTTP/1.1 {status} X\r\n{lines}\r\n".encode())


def exchange(method: str = "GET", *fields: str) -> UpstreamExchange:
    lines = "".join(f"{field}\r\n" for field in fields)
    return UpstreamExchange(parse_request(f"{method} http://a.example/ HTTP/1.1\r\nHost: a\r\n{lines}\r\n".encode()))


OWN = "Proxy-Status: up; error=proxy_internal_error"


@table(
    ("status", "fields", "own"),
    [
        (407, (), True),
        (407, ("Via: 1.1 up",), True),
        (502, (), True),
        (503, (), True),
        (504, (), True),
        (503, ("Via: 1.1 up",), False),
        (500, (), False),
        (429, (), False),
        (404, (), False),
        (200, (OWN,), False),
        (429, (OWN,), True),
        (429, (OWN, "Via: 1.1 up"), True),
        (429, (OWN, "Via: 1.1 other"), False),
        (429, (OWN, "Via: 1.1 up, 1.1 nearer"), False),
        (403, ('Proxy-Status: far; error=dns_error, "up"; error=connection_refused; details="a, b"',), True),
        (403, ("Proxy-Status: up; error=connection_refused, nearer",), False),
        (503, ("Via: 1.1 up", "Proxy-Status: up; received-status=503; error=http_protocol_error"), False),
        (503, ("Via: 1.1 up", "Proxy-Status: up; received-status=503"), False),
        (503, ("Via: 1.1 up", "Proxy-Status:"), False),
        (429, ('Proxy-Status: up; details="; error=dns_error"',), False),
        (429, ("Proxy-Status: up; error=proxy_internal_error,",), False),
        (429, ('Proxy-Status: up; error=proxy_internal_error; details="a',), False),
        (429, ("Proxy-Status: up error=proxy_internal_error",), False),
        (429, ('Proxy-Status: far, "', OWN), True),
        (429, (OWN, "Proxy-Status: nearer"), False),
        (429, (f"{OWN}; details={'x' * 900}",), True),
        (429, (f"{OWN}; details={'x' * 1000}",), False),
    ],
)
def test_a_response_is_the_upstream_s_own_by_proxy_status_or_without_via(
    status: int, fields: tuple[str, ...], own: bool
) -> None:
    assert is_own(response(status, *fields)) is own


@table("unit", ['"\\', '"', 'a="', "a,", 'a;b="\\"', "; ", '"a",'])
def test_what_an_origin_writes_takes_no_more_time_than_its_length(unit: str) -> None:
    line = f"Proxy-Status: {unit * (15_000 // len(unit))}"
    hostile = response(429, line, line, line, f"Retry-After: {unit * 300}")
    began = time.process_time()
    assert not is_own(hostile)
    assert not names_target(hostile)
    assert retry_after(hostile) == 0.0
    assert time.process_time() - began < 2.0, "a minute when the expression begins anew at each place"


def test_an_error_of_the_target_is_none_of_the_upstream() -> None:
    assert names_target(response(502, "Proxy-Status: up; error=dns_error"))
    assert not names_target(response(502, OWN))
    assert not names_target(response(502, "Proxy-Status: far; error=dns_error, up; error=connection_limit_reached"))
    assert not names_target(response(502))


@table(
    ("fields", "seconds"),
    [
        ((), 0.0),
        (("Retry-After: 120",), 120.0),
        (("Retry-After: 999999999999",), 86_400.0),
        (("Retry-After: -1",), 0.0),
        (("Retry-After: soon",), 0.0),
        (("Retry-After: Sun, 06 Nov 1994 08:50:07 GMT", "Date: Sun, 06 Nov 1994 08:49:37 GMT"), 30.0),
        (("Retry-After: Sun, 06 Nov 1994 08:49:07 GMT", "Date: Sun, 06 Nov 1994 08:49:37 GMT"), 0.0),
        (("Retry-After: Sun, 06 Nov 1994 08:50:07 GMT",), 0.0),
        ((f"Retry-After: Sun, 06 Nov 1994 08:50:07 +{'9' * 20}", "Date: Sun, 06 Nov 1994 08:49:37 GMT"), 0.0),
    ],
)
def test_retry_after_is_seconds_or_a_date_behind_that_of_the_response(fields: tuple[str, ...], seconds: float) -> None:
    assert retry_after(response(503, *fields)) == seconds


@table(
    ("method", "fields", "status", "again"),
    [
        *((method, (), 503, True) for method in ("GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE")),
        *((method, (), 503, False) for method in ("POST", "PATCH", "LOCK", "get")),
        *((method, (), 407, True) for method in ("GET", "POST", "PATCH")),
        ("PUT", ("Content-Length: 2",), 503, False),
        ("PUT", ("Transfer-Encoding: chunked",), 407, False),
        ("GET", ("Expect: 100-continue",), 503, False),
    ],
)
def test_only_what_may_be_repeated_is_sent_to_another_upstream(
    method: str, fields: tuple[str, ...], status: int, again: bool
) -> None:
    request, out = exchange(method, *fields), list[Command]()
    request.sent(True, lambda _status: True)
    if again:
        with pytest.raises(AskAnotherUpstream):
            request.check(response(status), False, out)
    elif status == 407:
        with pytest.raises(Refused):
            request.check(response(status), False, out)
    else:
        request.check(response(status), False, out)
    assert out == [UpstreamRefused() if status == 407 else UpstreamResponded(status)]
    assert request.lost(False, []) is ((again and status != 407) or (method == "GET" and not fields))


def test_nothing_is_repeated_behind_an_interim_response_or_when_there_is_no_other_upstream() -> None:
    request, out = exchange(), list[Command]()
    request.sent(True, lambda _status: True)
    request.check(response(503), True, out)
    assert not request.lost(True, out)
    asked: list[int] = []
    request.sent(True, lambda status: bool(asked.append(status)))
    request.check(response(502), False, out)
    assert not request.lost(False, out)
    assert asked == [502, 0]
    assert out == [UpstreamResponded(503), UpstreamResponded(502)]


def test_without_a_pool_only_a_407_matters_and_three_upstreams_may_send_it() -> None:
    request, out = exchange("POST"), list[Command]()
    request.sent(True, None)
    request.check(response(503), False, out)
    assert out == []
    with pytest.raises(UpstreamRefusesUs):
        request.check(response(407), False, out)
    assert [request.may_retry(False) for _ in range(UPSTREAMS_TRIED)] == [True] * (UPSTREAMS_TRIED - 1) + [False]
    assert not request.lost(False, out)
