"""The private members of waitress that ours build on: a release without them must not pass unnoticed."""

from __future__ import annotations

from waitress import trigger, wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask

from tests.kit.tables import table


@table(
    ("owner", "names"),
    [
        (HTTPChannel, "service handle_close handle_read handle_write readable writable received send"),
        (HTTPChannel, "total_outbufs_len will_close close_when_flushed parser_class task_class error_task_class"),
        (TcpWSGIServer, "readable handle_accept maintenance channel_class fix_addr set_socket_options getsockname"),
        (TcpWSGIServer, "add_task handle_error in_connection_overflow set_socket accept run pull_trigger"),
        (HTTPChannel, "write_soon _flush_some _flush_exception last_activity"),
        (HTTPChannel, "_flush_outbufs_below_high_watermark send_continue"),
        (HTTPRequestParser, "received parse_header expect_continue completed chunked body_rcv"),
        (WSGITask, "execute build_response_header write finish wrote_header content_bytes_written close_on_finish"),
        (ErrorTask, "execute build_response_header set_close_on_finish"),
        (wasyncore.dispatcher, "close del_channel set_socket accept add_channel accepting"),
        (wasyncore, "readwrite"),
        (trigger, "trigger"),
    ],
)
def test_waitress_has_the_members_that_are_overridden_or_used(owner: object, names: str) -> None:
    assert [name for name in names.split() if not hasattr(owner, name)] == []
