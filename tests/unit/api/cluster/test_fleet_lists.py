"""Lists and pools with a source in a fleet: one node asks it, all have the content; and the files that carry that."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from actors.cluster.identity import NodeIdentity
from actors.lists.compiled import CompiledList
from actors.lists.files import compile_entries
from api.cluster.blobs import PART, BlobMissing, Blobs
from api.cluster.fleet_chores import FleetPruning
from api.cluster.fleet_node import FleetNode
from api.engine.commit import Engine
from api.objects.named import list_fetches
from api.objects.named.fleet_lists import LIST_STATES, FleetLists
from api.objects.named.list_contents import ListState, ListStates, Sourced
from api.objects.named.list_fetches import ListFetches
from api.objects.named.shared_objects import FETCHED_UPSTREAMS, PoolSources
from config.files.paths import open_data_dir
from config.model.shared_objects.lists import DestinationList, ListSource
from config.model.shared_objects.pools import Pool, PoolSource
from config.settings.groups import History
from tests.kit.list_sources import Content, Source, content
from tests.kit.postgresql import needs_postgresql
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until
from tests.unit.api.cluster.nodes import Fleet, beat, fleet

pytestmark = needs_postgresql
LIST, POOL = "list_1", "pool_1"


class Machine:
    """A node that follows the fleet's commits when `follows` asks."""

    def __init__(self, ours: Fleet, name: str, source: Source) -> None:
        self.node = FleetNode(NodeIdentity(ours.id, f"nod_{name}", name, "full", ours.dsn))
        self.data = open_data_dir(ours.folder / name)
        self.engine = Engine(self.data, ours.seal, self.node.ledger)
        self.states = ListStates(self.data.lists)
        self.lists = FleetLists(self.engine, self.states, lambda: self.node)
        self.sources = PoolSources(self.engine, ours.seal)
        self.changes: list[str] = []
        self.events: list[str] = []
        self.record = DestinationList(
            id=LIST, name="ads", kind="domains", created_at=1, updated_at=1, source=ListSource(url=source.url)
        )
        self.records: list[Sourced] = [self.record]
        self.fetches = ListFetches(
            self.states,
            lambda: self.records,
            lambda: ([], ""),
            lambda event, _data: self.events.append(event),
            self.changes.append,
            keep=lambda pool, upstreams: self.sources.keep(pool, upstreams, [], 1.0),
            has=self.sources.has,
            fleet=self.lists,
        )

    @property
    def state(self) -> ListState:
        return self.states.get(LIST)

    @property
    def path(self) -> Path:
        return self.states.folder / self.state.file

    def take_duty(self) -> bool:
        self.lists.has_duty  # noqa: B018 - from now on it is wanted
        beat(self.node.duties, self.node.database, self.node.node_id)
        return self.lists.has_duty

    def matches(self, name: str) -> str | None:
        return CompiledList(self.path).by_name(name) if self.state.file else None

    def follows(self, condition: Callable[[], Any], what: str) -> None:
        def holds() -> Any:
            self.engine.catch_up()
            return condition()

        wait_until(holds, what)

    def refresh(self) -> None:
        before = self.state
        self.fetches.refresh(LIST)
        wait_until(lambda: self.state is not before and not self.fetches.is_under_way(LIST), "a fetch")

    def stop(self) -> None:
        """As if it were killed: it gives nothing back."""
        self.fetches.close()

    def end(self) -> None:
        self.fetches.close()
        self.node.close()
        self.engine.close()


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(list_fetches, "CHECK_PERIOD", 0.02)


@pytest.fixture
def source() -> Iterator[Source]:
    with Source(content("a.example\nb.example\n", etag='"1"')) as found:
        yield found


@pytest.fixture
def ours() -> Iterator[Fleet]:
    with fleet() as found:
        yield found


@pytest.fixture
def two(ours: Fleet, source: Source) -> Iterator[tuple[Machine, Machine]]:
    """Two nodes, of which the first has the duty."""
    with ExitStack() as stack:
        one, other = (Machine(ours, name, source) for name in ("a", "b"))
        for each in (one, other):
            stack.callback(each.end)
        assert (one.take_duty(), other.take_duty()) == (True, False)
        yield one, other


def start(*machines: Machine) -> None:
    for each in machines:
        each.fetches.start()


def test_one_node_asks_the_source_and_all_have_the_content(two: tuple[Machine, Machine], source: Source) -> None:
    one, other = two
    start(one, other)
    wait_until(lambda: one.state.file, "the first fetch")
    other.follows(lambda: other.matches("www.a.example"), "the other has it")
    assert other.state == one.state
    assert other.path.read_bytes() == one.path.read_bytes()
    assert len(source.requests) == 1, "a provider counts downloads"
    first = other.path
    source.now = content("c.example\n", etag='"2"')
    one.refresh()
    other.follows(lambda: other.matches("c.example"), "the other has the next one")
    assert other.matches("a.example") is None
    assert (one.changes, other.changes, len(source.requests)) == ([LIST] * 2, [LIST] * 2, 2)
    source.now = content("d.example\n", etag='"3"')
    one.refresh()
    other.follows(lambda: other.matches("d.example"), "the other has the last one")
    assert not first.exists(), "files that are outdated are removed"


def test_a_failure_is_said_once_and_known_to_all(two: tuple[Machine, Machine], source: Source) -> None:
    source.now = Content(status=503)
    one, other = two
    start(one, other)
    wait_until(lambda: one.state.failures, "the first try")
    other.follows(lambda: other.state.failures, "the other knows it")
    assert (one.events, other.events, len(source.requests)) == (["list.error"], [], 1)


def test_a_node_that_stops_has_a_successor_that_asks_when_it_is_due(
    ours: Fleet, two: tuple[Machine, Machine], source: Source
) -> None:
    one, other = two
    start(one, other)
    other.follows(lambda: other.state.file, "the other has it")
    one.stop()
    ours.execute("UPDATE proxyfleet.duties SET until = clock_timestamp() - interval '1 ms'")
    assert other.take_duty()
    other.fetches.soon()
    other.refresh()
    assert len(source.requests) == 2, "not when it gets the duty"
    assert source.requests[1]["if-none-match"] == '"1"', "it goes on where the other was"
    assert other.state.fetched_at > one.state.fetched_at


def test_two_that_fetch_at_once_have_the_same(two: tuple[Machine, Machine]) -> None:
    one, other = two
    for each in two:
        each.fetches.refresh(LIST)
    start(one, other)
    for each in two:
        each.follows(lambda each=each: each.state.file and not each.fetches.is_under_way(LIST), "it has it")
    one.follows(lambda: one.state == other.state, "they agree")
    assert one.matches("a.example") == other.matches("a.example") == "a.example"
    assert one.events == other.events == []


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"damaged")])
def test_a_file_that_is_gone_or_damaged_comes_from_the_fleet(
    ours: Fleet, two: tuple[Machine, Machine], source: Source, damage: Callable[[Path], Any]
) -> None:
    one, other = two
    start(one)
    other.fetches.start()
    other.follows(lambda: other.state.file, "the other has it")
    other.end()
    damage(other.path)
    again = Machine(ours, "b", source)
    try:
        again.fetches.start()
        wait_until(lambda: again.changes, "it has it again")
        assert (again.matches("a.example"), again.changes, len(source.requests)) == ("a.example", [LIST], 1)
    finally:
        again.end()


def test_what_was_fetched_before_there_was_a_fleet_is_not_fetched_again(
    two: tuple[Machine, Machine], source: Source
) -> None:
    one, other = two
    alone = ListFetches(one.states, lambda: one.records, lambda: ([], ""), lambda *_: None, lambda _id: None)
    alone.start()
    wait_until(lambda: one.state.file, "the first fetch")
    alone.close()
    start(one, other)
    other.follows(lambda: other.matches("a.example"), "the other has it")
    assert len(source.requests) == 1


def test_a_list_that_is_deleted_is_forgotten_with_its_file(ours: Fleet, two: tuple[Machine, Machine]) -> None:
    one, other = two
    start(one, other)
    other.follows(lambda: other.state.file, "the other has it")
    named = "SELECT digest FROM proxyfleet.blobs"
    pruning = FleetPruning(one.engine, one.node.database, one.node.duties, History)
    ours.execute("UPDATE proxyfleet.blobs SET at = at - interval '11 min'")
    pruning.act()
    assert len(ours.execute(named)) == 1, "a document names it"
    for each in two:
        each.records = []
    other.follows(lambda: other.engine.get(LIST_STATES, LIST) is None, "its state is deleted")
    one.follows(lambda: one.engine.get(LIST_STATES, LIST) is None, "and in the file of the node that deleted it")
    pruning.act()
    assert ours.execute(named) == []


def test_upstreams_of_pools_are_fetched_by_one_node(two: tuple[Machine, Machine], source: Source) -> None:
    source.now = content("a.example:1\n")
    one, other = two
    pool = Pool(id=POOL, name="exits", created_at=1, updated_at=1, source=PoolSource(url=source.url))
    for each in two:
        each.records = [pool]
    start(one, other)
    other.follows(lambda: other.states.get(POOL).file, "the other knows it")
    assert other.engine.get(FETCHED_UPSTREAMS, POOL) is not None
    assert (one.changes, other.changes, len(source.requests)) == ([POOL], [POOL], 1)


def test_without_the_database_all_keep_what_they_have_and_go_on_after_it(source: Source) -> None:
    with Server() as server, server.database() as dsn, fleet(dsn) as ours, ExitStack() as stack:
        one, other = (Machine(ours, name, source) for name in ("a", "b"))
        for each in (one, other):
            stack.callback(each.end)
        one.take_duty()
        start(one, other)
        other.follows(lambda: other.state.file, "the other has it")
        server.stop()
        source.now = content("c.example\n")
        one.refresh()
        assert [each.matches("a.example") for each in (one, other)] == ["a.example"] * 2
        assert "can't be stored" in one.state.last_error
        server.start()
        wait_until(lambda: one.node.database.is_available, "the database is back")
        one.refresh()
        other.follows(lambda: other.matches("c.example"), "the other follows")


# --- files ---


def file_of(folder: Path, size: int) -> Path:
    path = folder / f"{size}"
    path.write_bytes(random.Random(size).randbytes(size))
    return path


def test_files_come_back_as_they_were_put(ours: Fleet, tmp_path: Path) -> None:
    blobs, target = Blobs(ours.database), tmp_path / "new" / "file"
    for size in (0, 1, PART - 1, PART, PART + 1, 8 * PART, 9 * PART + 7):
        path = file_of(tmp_path, size)
        digest = blobs.put(path)
        assert blobs.put(path) == digest
        blobs.get(digest, target)
        assert target.read_bytes() == path.read_bytes()
    assert [each.name for each in target.parent.iterdir()] == ["file"]


def test_a_file_that_is_not_whole_takes_no_place(ours: Fleet, tmp_path: Path) -> None:
    blobs, target = Blobs(ours.database), tmp_path / "file"
    target.write_bytes(b"as it was")
    digest = blobs.put(file_of(tmp_path, 3 * PART))
    for wrong in (
        "DELETE FROM proxyfleet.blobs WHERE part = 1",
        "UPDATE proxyfleet.blobs SET content = '' WHERE part = 2",
    ):
        ours.execute(wrong)
        with pytest.raises(BlobMissing):
            blobs.get(digest, target)
        assert sorted(os.listdir(tmp_path)) == [str(3 * PART), "file"]
        assert target.read_bytes() == b"as it was"
    ours.execute("DELETE FROM proxyfleet.blobs WHERE part = 2")
    blobs.put(tmp_path / str(3 * PART))
    blobs.get(digest, target)
    assert target.read_bytes() == (tmp_path / str(3 * PART)).read_bytes(), "what was missing was put again"


def test_two_that_put_a_file_at_once_put_one(ours: Fleet, tmp_path: Path) -> None:
    path = file_of(tmp_path, 4 * PART)
    with ThreadPoolExecutor(2) as pool:
        digests = {*pool.map(lambda _: Blobs(ours.database).put(path), range(2))}
    assert ours.execute("SELECT digest, count(*) FROM proxyfleet.blobs GROUP BY digest") == [(*digests, 4)]


def test_the_same_entries_are_the_same_file_on_every_node(tmp_path: Path) -> None:
    entries = ["b.example", "a.example"]
    names = {compile_entries(tmp_path / node, LIST, "domains", entries) for node in ("a", "b")}
    assert len(names) == 1
