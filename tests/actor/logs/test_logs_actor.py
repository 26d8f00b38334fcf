"""The log indexer as a real process: killed in the middle, searched while it stores, with changed settings."""

from __future__ import annotations

import json
import logging
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actors.bus import records
from actors.bus.mailbox import MailboxRouter
from actors.bus.messages.common import ApplySettings, Done, Failed, Hello
from actors.bus.messages.records import LogPage, LogTailPage, QueryLogs, TailLogs
from actors.log_lines import JournalHandler
from actors.logs import sinks
from config.text.access_fields import ACCESS_FIELDS
from tests.actor.logs.log_processes import Indexer, Load, targets
from tests.kit.bus import Bench
from tests.kit.settings import boot_settings

ALL = QueryLogs(0.0, 1e12, 1000, 0, None, None, None)


@pytest.fixture
def data(bench: Bench) -> Path:
    return bench.run_dir.path / "data"


@pytest.fixture
def load(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Load:
    monkeypatch.setattr(records, "FLUSH_PERIOD", 0.02)
    monkeypatch.setattr(records, "RESEND_AFTER", 0.2)
    return Load(bench)


def test_an_indexer_that_is_killed_five_times_under_load_loses_no_record_and_stores_none_twice(
    bench: Bench, data: Path, load: Load
) -> None:
    indexer: Indexer = bench.keep(Indexer(bench, data))
    for kill in range(5):
        indexer.start()
        load.until(300 + 100 * kill, f"records are acknowledged after {kill} kills")
        load.send(1_500)
        bench.loop.turn(0.01)
        indexer.kill()
    indexer.start()
    bench.until(lambda: load.sender.settled, "the last records are acknowledged")
    indexer.kill()
    assert load.sender.dropped == 0
    assert targets(data) == [f"host:{number}" for number in range(load.sent)]


class Client:
    """The supervisor's end of the mailbox, which sends requests to the indexer."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.here: list[str] = []
        self.router: MailboxRouter = bench.keep(
            MailboxRouter(bench.loop, bench.context, bench.run_dir.mailbox, self._receive)
        )

    def _receive(self, sender: str, message: Any, _answer: Any) -> None:
        if isinstance(message, Hello):
            self.here.append(sender)
            self.router.set_current_instance("logs", message.instance)

    def ask(self, message: Any) -> list[Any]:
        """A list into which the reply will come."""
        replies: list[Any] = []
        self.router.ask("logs", message, replies.append, 30.0)
        return replies

    def reply(self, message: Any) -> Any:
        """The reply."""
        replies = self.ask(message)
        self._bench.until(lambda: replies, f"a reply to {type(message).__name__}")
        return replies[0]


@pytest.fixture
def client(bench: Bench, data: Path) -> Iterator[Client]:
    made = Client(bench)
    indexer: Indexer = bench.keep(Indexer(bench, data))
    indexer.start()
    bench.until(lambda: made.here, "the indexer registers")
    yield made
    indexer.close()


def found(tail: Any) -> list[str]:
    assert isinstance(tail, LogTailPage), tail
    return [each["target_url"] for each in tail.rows]


def test_a_waiting_tail_receives_new_records_and_goes_on_after_them(bench: Bench, client: Client, load: Load) -> None:
    waiting = client.ask(TailLogs(ALL, None, 30.0))
    bench.loop.turn(0.05)
    assert not waiting
    load.send(3)
    bench.until(lambda: waiting, "the tail has its reply")
    seen, last = found(waiting[0]), waiting[0].last
    while len(seen) < 3:
        reply = client.reply(TailLogs(ALL, last, 30.0))
        seen += found(reply)
        last = reply.last
    assert seen == ["host:0", "host:1", "host:2"]
    assert found(client.reply(TailLogs(ALL, last, 0.0))) == []


def test_a_tail_whose_records_are_all_left_out_by_its_filter_is_empty_in_time(client: Client, load: Load) -> None:
    page = client.reply(ALL)
    assert isinstance(page, LogPage)
    load.send(3)
    errors = QueryLogs(0.0, 1e12, 100, 0, "error", None, None)
    assert found(client.reply(TailLogs(errors, page.upto, 0.3))) == []


def test_more_searches_than_there_is_room_for_are_refused(bench: Bench, client: Client) -> None:
    waiting = [client.ask(TailLogs(ALL, None, 30.0)) for _ in range(70)]
    bench.until(lambda: sum(map(len, waiting)) >= 6, "those above the limit have replies")
    assert {type(replies[0]) for replies in waiting if replies} == {Failed}
    assert sum(map(len, waiting)) == 6


def test_records_go_to_a_file_as_lines_as_long_as_the_settings_name_one(
    bench: Bench, data: Path, client: Client, load: Load
) -> None:
    def configure(output: str) -> None:
        assert client.reply(ApplySettings({"logging": boot_settings(logging={"output": output})["logging"]})) == Done()

    def sent(count: int) -> None:
        load.send(count)
        bench.until(lambda: load.sender.settled, "the records are stored")

    load.sender.proxy_name = "office"
    sent(1)
    configure("jsonl")
    sent(2)
    configure("stderr")
    sent(1)
    (file,) = (data / "logs").glob("*.jsonl")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["target_url"], line["proxy_name"]) for line in lines] == [("host:1", "office"), ("host:2", "office")]
    assert file.stat().st_mode & 0o777 == 0o600
    assert lines[0]["message"] == "host:1 200"


def row_of(target: str) -> list[Any]:
    row = [0.0, "warning", "prx_1", "10.0.0.1", "", "GET", target, 502, 1, 2, 3, 4, "r-1", "dns_error"]
    return [*row, *[""] * (len(ACCESS_FIELDS) - len(row))]


@pytest.fixture
def journal(bench: Bench) -> Iterator[socket.socket]:
    """A socket that is taken for the journal's."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(str(bench.run_dir.path / "journal"))
        made.settimeout(5)
        yield made


def entry_in(packet: bytes) -> dict[str, str]:
    """The fields of an entry in the journal's native format, read as it is documented."""
    fields = {}
    while packet:
        line, _, packet = packet.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            length = int.from_bytes(packet[:8], "little")
            value, packet = packet[8 : 8 + length], packet[8 + length + 1 :]
        fields[name.decode()] = value.decode()
    return fields


def test_a_record_is_an_entry_of_the_journal_with_its_fields(journal: socket.socket) -> None:
    sink = sinks.JournalSink(Path(journal.getsockname()))
    assert sink.write([row_of("http://a.example/")], "office") == 1
    entry = entry_in(journal.recv(65_536))
    assert (entry["MESSAGE"], entry["PRIORITY"]) == ("GET http://a.example/ 502 (dns_error)", "4")
    assert (entry["PROXYFLEET_PROXY_ID"], entry["PROXYFLEET_BYTES_OUT"]) == ("prx_1", "4")
    assert entry["PROXYFLEET_PROXY_NAME"] == "office"
    assert (entry["SYSLOG_IDENTIFIER"], entry["PROXYFLEET_TIMESTAMP"]) == ("proxyfleet", "1970-01-01T00:00:00.000Z")
    assert "PROXYFLEET_USER" not in entry
    sink.close()


def test_an_entry_that_is_too_large_for_a_datagram_goes_as_a_sealed_file(journal: socket.socket) -> None:
    sink = sinks.JournalSink(Path(journal.getsockname()))
    assert sink.write([row_of("http://a.example/" + "x" * 3_000_000)], "office") == 1
    data, (file, *_others), _flags, _address = socket.recv_fds(journal, 10, 2)
    assert data == b""
    with pytest.raises(PermissionError), open(file, "r+b", closefd=False) as writing:
        writing.write(b"x")
    entry = entry_in(os.pread(file, os.fstat(file).st_size, 0))
    os.close(file)
    assert len(entry["PROXYFLEET_TARGET_URL"]) == 3_000_017
    sink.close()


def test_a_full_journal_costs_records_and_no_time(journal: socket.socket) -> None:
    sink = sinks.JournalSink(Path(journal.getsockname()))
    written = sink.write([row_of(f"http://a.example/{number}") for number in range(20_000)], "office")
    assert 0 < written < 20_000
    with pytest.raises(BlockingIOError):
        sink.write([row_of("one more")], "office")
    sink.close()


def test_the_log_itself_goes_to_the_journal_where_no_value_forges_a_field(
    journal: socket.socket, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = JournalHandler(Path(journal.getsockname()))
    record = logging.LogRecord("some.logger", logging.ERROR, "f", 1, "two\nPRIORITY=0", (), None)
    record.fields = {"path": "/a\nMESSAGE=b"}
    handler.emit(record)
    entry = entry_in(journal.recv(65_536))
    assert (entry["MESSAGE"], entry["PRIORITY"]) == ("two\\nPRIORITY=0", "3")
    assert (entry["PROXYFLEET_PATH"], entry["PROXYFLEET_LOGGER"]) == ("/a\nMESSAGE=b", "some.logger")
    journal.close()
    handler.emit(record)
    assert "two" in capfd.readouterr().err
    handler.close()


def test_lines_go_on_in_a_fresh_file_when_the_old_one_was_moved_away(tmp_path: Path) -> None:
    made = sinks.ActiveSink(tmp_path)
    made.configure(f"jsonl:{tmp_path}/access")
    made.write([row_of("first")], "office")
    (tmp_path / "access").rename(tmp_path / "access.1")
    made.write([row_of("second")], "office")
    assert '"first"' in (tmp_path / "access.1").read_text()
    assert '"second"' in (tmp_path / "access").read_text()
    made.close()


def test_a_line_that_does_not_fit_leaves_no_half_of_it(tmp_path: Path) -> None:
    made = sinks.ActiveSink(tmp_path)
    made.configure(f"jsonl:{tmp_path}/access")
    made.write([row_of("first")], "office")
    size = (tmp_path / "access").stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, before[1]))
    try:
        made.write([row_of("second")], "office")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "access").stat().st_size == size
    made.write([row_of("third")], "office")
    lines = [json.loads(line)["target_url"] for line in (tmp_path / "access").read_text().splitlines()]
    assert (lines, made.dropped) == (["first", "third"], 1)
    made.close()


def test_records_that_a_sink_drops_are_counted_and_logged_and_delay_nothing(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    made = sinks.ActiveSink(bench.run_dir.path)
    made.configure(f"jsonl:{bench.run_dir.path}/no-folder/file")
    for number in range(3):
        made.write([row_of(str(number))], "office")
    assert made.dropped == 3
    assert len([record for record in caplog.records if "No such file" in record.getMessage()]) == 1


@pytest.mark.parametrize(
    ("output", "template", "ending"),
    [
        ("combined", "", '"GET http://a.example/ HTTP/1.1" 502 4 "-" "-"\n'),
        ("template", "%rm %{reason} %{proxy_name}", "GET dns_error office\n"),
    ],
)
def test_lines_are_in_the_format_that_is_chosen(tmp_path: Path, output: str, template: str, ending: str) -> None:
    made = sinks.ActiveSink(tmp_path)
    made.configure(f"{output}:{tmp_path}/named", template)
    made.write([row_of("http://a.example/")], "office")
    made.configure(output, template)
    made.write([row_of("http://a.example/")], "office")
    made.close()
    (daily,) = tmp_path.glob("????-??-??.log")
    assert (tmp_path / "named").read_text().endswith(ending)
    assert daily.read_text() == (tmp_path / "named").read_text()


def test_another_template_holds_from_the_next_line_on(tmp_path: Path) -> None:
    made = sinks.ActiveSink(tmp_path)
    for template in ("%rm", "%{reason}"):
        made.configure(f"template:{tmp_path}/access", template)
        made.write([row_of("http://a.example/")], "office")
    made.close()
    assert (tmp_path / "access").read_text() == "GET\ndns_error\n"
