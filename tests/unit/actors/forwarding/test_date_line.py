"""`Date` in the form of RFC 9110 5.6.7, and no more often written than it changes."""

from __future__ import annotations

import email.utils

from hypothesis import given
from hypothesis import strategies as st

from actors.forwarding.context import DateLine, http_date
from actors.forwarding.protocols.http.error_body import dated


def test_the_date_of_the_rfc() -> None:
    assert http_date(784111777) == "Sun, 06 Nov 1994 08:49:37 GMT"


@given(st.floats(0, 253402300799))
def test_dates_are_written_as_others_write_them(wall: float) -> None:
    assert http_date(wall) == email.utils.formatdate(int(wall), usegmt=True)


def test_a_line_is_written_anew_when_the_second_of_the_wall_clock_is_over() -> None:
    walls = iter([784111777.75, 784111778.5, 784111000.0])
    line = DateLine(lambda: next(walls))
    assert line(100.0) == line(100.2) == b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
    assert line(100.3) == line(100.7) == b"Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n"
    assert line(100.8) == b"Date: Sun, 06 Nov 1994 08:36:40 GMT\r\n", "the wall clock was set back"


def test_the_line_stands_behind_the_status_line() -> None:
    assert dated(b"HTTP/1.1 200 OK\r\nX: y\r\n\r\n", b"Date: d\r\n") == b"HTTP/1.1 200 OK\r\nDate: d\r\nX: y\r\n\r\n"
    assert dated(b"HTTP/1.1 200 OK\r\n\r\n", b"Date: d\r\n") == b"HTTP/1.1 200 OK\r\nDate: d\r\n\r\n"
