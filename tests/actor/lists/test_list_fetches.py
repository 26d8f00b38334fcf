"""When lists are fetched, and what becomes of their content: with processes that fetch from real servers."""

from __future__ import annotations

import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.lists.compiled import CompiledList
from api.objects.named import list_fetches
from api.objects.named.list_contents import ListState, ListStates
from api.objects.named.list_fetches import ListFetches
from config.files.secret_box import SecretBox
from config.model.shared_objects.lists import DestinationList, ListSource
from config.model.shared_objects.pools import Pool, PoolSource
from config.model.webhooks import HEADER_PURPOSE, opened_headers, sealed_headers
from tests.kit.list_sources import Content, Source, content
from tests.kit.place_databases import country, database
from tests.kit.wait import wait_until


class Stage:
    """One list, and what happens with it."""

    def __init__(self, folder: Path, source: Source) -> None:
        self.source = source
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.changes: list[str] = []
        self.record = DestinationList(
            id="list_1", name="ads", kind="domains", created_at=0, updated_at=0, source=ListSource(url=source.url)
        )
        self.others: list[DestinationList] = []
        self.states = ListStates(folder)
        self.opened: Callable[[Mapping[str, str]], dict[str, str]] = dict
        self.guard: tuple[list[tuple[str, int]], str] = ([], "")
        self.fetches = self.started()

    def started(self, fetch_max: float = 60.0) -> ListFetches:
        made = ListFetches(
            self.states,
            lambda: [self.record, *self.others],
            lambda: self.guard,
            lambda kind, data: self.events.append((kind, data)),
            self.changes.append,
            fetch_max=fetch_max,
            opened=self.opened,
        )
        made.start()
        return made

    def restart(self, fetch_max: float = 60.0) -> None:
        self.fetches.close()
        self.states = ListStates(self.states.folder)
        self.fetches = self.started(fetch_max)

    @property
    def state(self) -> ListState:
        return self.states.get("list_1")

    def refresh(self) -> ListState:
        """The state behind one more fetch."""
        before = self.state
        self.fetches.refresh("list_1")
        wait_until(lambda: self.state is not before and not self.fetches.is_under_way("list_1"), "a fetch")
        return self.state

    def matches(self, name: str) -> str | None:
        return CompiledList(self.states.folder / self.states.current_file(self.record)).by_name(name)


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_fetches, "CHECK_PERIOD", 0.05)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with Source(content("a.example\nb.example\nc.example\nd.example\n", etag='"1"')) as source:
        made = Stage(tmp_path / "lists", source)
        try:
            wait_until(lambda: made.state.fetched_at, "the first fetch")
            yield made
        finally:
            made.fetches.close()


def test_a_list_is_fetched_when_there_is_one_and_again_when_asked(stage: Stage) -> None:
    first = stage.state
    assert (first.entries, first.last_error, stage.changes) == (4, "", ["list_1"])
    assert stage.matches("www.a.example") == "a.example"
    interval = 24 * 3600
    assert 0.89 * interval < first.next_at - time.time() < 1.11 * interval
    assert stage.refresh().file == first.file
    stage.source.now = content("a.example\ne.example\n")
    assert stage.refresh().entries == 2
    assert stage.matches("e.example") == "e.example"
    assert stage.changes == ["list_1", "list_1"]
    assert len(stage.source.requests) == 3
    kept = {first.file, stage.state.file, "list_1.json"}
    assert {each.name for each in stage.states.folder.iterdir()} == kept


def test_upstreams_of_a_pool_are_fetched_and_kept_when_they_are_others(tmp_path: Path) -> None:
    kept: list[list[str]] = []
    events: list[tuple[str, dict[str, Any]]] = []
    changed: list[str] = []

    def keep(_pool: Pool, upstreams: Sequence[Mapping[str, Any]]) -> int:
        kept.append([each["host"] for each in upstreams])
        return 0

    states = ListStates(tmp_path / "lists")
    with Source(content("a.example:1 country=de\nb.example:1:u:p\n")) as source:
        pool = Pool(id="pool_1", name="exits", created_at=0, updated_at=0, source=PoolSource(url=source.url))
        fetches = ListFetches(
            states,
            lambda: [pool],
            lambda: ([], ""),
            lambda kind, data: events.append((kind, data)),
            changed.append,
            keep=keep,
            has=lambda _pool: bool(kept),
        )
        fetches.start()
        try:
            wait_until(lambda: states.get("pool_1").fetched_at, "the first fetch")
            for now in (content("# again\na.example:1 country=de\nb.example:1:u:p\n"), Content(status=503)):
                source.now, before = now, states.get("pool_1")
                fetches.refresh("pool_1")
                wait_until(lambda before=before: states.get("pool_1") is not before, "a fetch")
            assert (kept, changed) == ([["a.example", "b.example"]], ["pool_1"])
            error = {"pool_id": "pool_1", "name": "exits", "error": "it responded with status 503"}
            assert events == [("pool.error", error)]
            kept.clear()  # as after a restore without secrets
            source.now = content("a.example:1 country=de\nb.example:1:u:p\n")
            fetches.refresh("pool_1")
            wait_until(lambda: kept, "the fetch of what is lost")
        finally:
            fetches.close()
        assert {each.name for each in states.folder.iterdir()} == {"pool_1.json"}


def test_headers_are_opened_for_the_fetch_and_another_one_is_asked_with_at_once(stage: Stage, tmp_path: Path) -> None:
    seal = SecretBox(tmp_path / "secrets.key")
    stage.opened = lambda headers: opened_headers(headers, seal)
    stage.restart()
    for key in ("first", "second"):
        sealed, _ = sealed_headers({"X-Key": key}, {}, seal)
        stage.record = stage.record.model_copy(update={"source": ListSource(url=stage.source.url, headers=sealed)})
        wait_until(lambda key=key: stage.source.requests[-1].get("x-key") == key, "a fetch with it")
        wait_until(lambda: stage.state.has_asked(stage.record), "its end")
    lost = {"X-Key": SecretBox(tmp_path / "other.key").seal("x", HEADER_PURPOSE)}
    stage.record = stage.record.model_copy(update={"source": ListSource(url=stage.source.url, headers=lost)})
    wait_until(lambda: stage.state.failures, "a failure")
    assert stage.state.last_error == "its headers can't be opened; the log says why"


def test_failures_keep_the_content_and_are_one_event_also_through_a_restart(stage: Stage) -> None:
    first = stage.state
    for now in (
        Content(status=503),
        content("a.example\n"),
        Content((b"a.example\n",), length=100),
        content(b"\x1f\x8b\x08 damaged"),
    ):
        stage.source.now = now
        failed = stage.refresh()
        assert failed.last_error
        assert (failed.file, failed.entries, failed.fetched_at) == (first.file, 4, first.fetched_at)
        assert stage.matches("c.example") == "c.example"
    assert failed.next_at < time.time() + 600, "it is tried again soon"
    stage.restart()
    assert stage.refresh().failures == 5
    error = {"list_id": "list_1", "name": "ads", "error": "it responded with status 503"}
    assert stage.events == [("list.error", error)]
    stage.source.now = content("a.example\nb.example\nc.example\n")
    assert (stage.refresh().failures, stage.state.last_error) == (0, "")
    stage.source.now = Content(status=404)
    assert stage.refresh().failures == 1
    assert len(stage.events) == 2


def test_nothing_is_fetched_anew_by_a_restart(stage: Stage) -> None:
    stage.restart()
    with Source(content("x.example\n")) as other:
        record = stage.record
        stage.record = record.model_copy(update={"source": ListSource(url=other.url)})
        wait_until(lambda: stage.state.url == other.url, "the other source")
    assert len(stage.source.requests) == 1
    assert stage.state.entries == 1, "another source may have fewer entries"


def test_a_source_that_sends_too_slowly_is_given_up(stage: Stage) -> None:
    def slowly() -> Iterator[bytes]:
        for _ in itertools.count():
            time.sleep(0.05)
            yield b"#\n"

    stage.restart(fetch_max=1.5)
    stage.source.now = Content(slowly())
    assert stage.refresh().last_error == "it was not complete within 1.5 s"
    assert stage.matches("a.example") == "a.example"


def test_lists_that_failed_leave_a_place_to_others(stage: Stage) -> None:
    released = threading.Event()

    def stuck() -> Iterator[bytes]:
        yield b"#\n"
        released.wait(60)

    paths = {"list_2": "/two", "list_3": "/three"}
    stage.source.by_path = {path: Content(status=503) for path in paths.values()}
    stage.others = [
        stage.record.model_copy(update={"id": each, "source": ListSource(url=stage.source.url_of(path))})
        for each, path in paths.items()
    ]
    for each in paths:
        stage.fetches.refresh(each)
    wait_until(lambda: all(stage.states.get(each).failures for each in paths), "two lists that failed")
    stage.source.by_path = {path: Content(stuck()) for path in paths.values()}
    before = len(stage.source.requests)
    for each in paths:
        stage.fetches.refresh(each)
    try:
        wait_until(lambda: len(stage.source.requests) > before, "a fetch that is stuck")
        stage.refresh()
        assert all(map(stage.fetches.is_under_way, paths))
    finally:
        released.set()
    wait_until(lambda: not any(stage.states.get(each).failures for each in paths), "both lists in turn")


def test_a_damaged_file_is_fetched_anew_at_the_next_fetch(stage: Stage) -> None:
    path = stage.states.folder / stage.state.file
    path.write_bytes(path.read_bytes()[:-1])
    stage.refresh()
    assert stage.matches("a.example") == "a.example"


def test_a_fetch_that_crashes_is_an_error_of_the_list(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(list_fetches, "_read", crash)
    state = stage.refresh()
    assert (state.last_error, state.failures) == ("fetching it failed: RuntimeError: unforeseen", 1)
    assert stage.matches("a.example") == "a.example"
    monkeypatch.undo()
    monkeypatch.setattr(list_fetches, "_PROGRAM", ("/nonexistent/program",))
    assert stage.refresh().last_error.startswith("no process that fetches it can be started: No such file")
    monkeypatch.setattr(list_fetches, "_PROGRAM", (sys.executable, "-c", "raise SystemExit(3)"))
    assert stage.refresh().last_error == "the process that fetches it has ended with status 3"
    program = "import os, signal; os.kill(os.getpid(), signal.SIGXCPU)"
    monkeypatch.setattr(list_fetches, "_PROGRAM", (sys.executable, "-c", program))
    assert stage.refresh().last_error == "reading it takes more than 300 s of a processor"
    monkeypatch.setattr(list_fetches, "_PROGRAM", (sys.executable, "-c", "print('[')"))
    assert stage.refresh().last_error.startswith("fetching it failed: JSONDecodeError")
    assert [kind for kind, _data in stage.events] == ["list.error"]
    monkeypatch.undo()
    assert stage.refresh().last_error == ""


def test_a_state_that_cannot_be_stored_is_an_error_and_the_source_is_not_asked_without_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(stage.states, "put", fail)
    state = stage.refresh()
    assert state.last_error == "its state can't be stored: No space left on device"
    assert state.next_at > time.time() + 50
    assert stage.matches("a.example") == "a.example"


def test_a_round_that_crashes_is_not_the_last_one(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []

    def crash(_records: object) -> tuple[str, ...]:
        calls.append(None)
        raise ValueError("unforeseen")

    monkeypatch.setattr(stage.fetches, "_settle", crash)
    stage.refresh()
    wait_until(lambda: calls, "a round that crashes")
    stage.refresh()
    assert len(stage.source.requests) == 3


def test_a_database_that_is_replaced_is_read_without_being_asked(stage: Stage, tmp_path: Path) -> None:
    file = tmp_path / "world.mmdb"
    file.write_bytes(database({"192.0.2.0/24": country("DE")}))
    record = stage.record
    stage.record = record.model_copy(
        update={"kind": "geo", "source": ListSource(file=str(file), format="mmdb"), "updated_at": 1}
    )
    wait_until(lambda: stage.state.kind == "geo", "the database")
    assert stage.states.current_file(record) == "", "of another kind"
    first = stage.state
    (tmp_path / "new").write_bytes(database({"192.0.2.0/24": country("FR")}))
    (tmp_path / "new").rename(file)
    wait_until(lambda: stage.state.file != first.file, "the other database")
    (tmp_path / "bad").write_bytes(b"half")
    (tmp_path / "bad").rename(file)
    wait_until(lambda: stage.state.last_error, "an error")
    assert stage.state.file != first.file
    assert stage.states.current_file(stage.record) == stage.state.file


def test_nothing_is_kept_of_contents_before_and_of_lists_that_are_gone(stage: Stage, tmp_path: Path) -> None:
    stage.source.now = content("a.example\ne.example\n")
    stage.refresh()
    kept = stage.fetches._whole, stage.states._known, stage.fetches._versions
    wait_until(lambda: kept[0] <= {stage.state.file}, "only the current content")
    stage.others = [stage.record.model_copy(update={"id": "list_2", "source": ListSource(file=str(tmp_path))})]
    wait_until(lambda: stage.states.get("list_2").failures and kept[2], "a list of a file")
    stage.others = []
    wait_until(lambda: "list_2" not in kept[1] and not kept[2], "no trace of it")


def test_the_guard_holds(stage: Stage) -> None:
    stage.guard = [("127.0.0.1", stage.source.port, stage.source.port)], ""
    assert stage.refresh().last_error == "the target is this service itself"


def test_a_state_that_cannot_be_read_is_made_anew(stage: Stage) -> None:
    stage.fetches.close()
    (stage.states.folder / "list_1.json").write_text("{")
    stage.restart()
    wait_until(lambda: stage.state.fetched_at, "the list")
    assert stage.state.entries == 4


def test_a_missing_file_is_fetched_anew_at_the_start(stage: Stage) -> None:
    stage.fetches.close()
    (stage.states.folder / stage.state.file).unlink()
    stage.restart()
    wait_until(lambda: len(stage.source.requests) == 2 and not stage.fetches.is_under_way("list_1"), "the list")
    assert "if-none-match" not in stage.source.requests[1]
    assert stage.matches("a.example") == "a.example"
