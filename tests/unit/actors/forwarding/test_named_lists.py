"""The lists of a forwarding actor: read at their first use, replaced while they are used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from actors.bus.loop import Loop
from actors.bus.messages.common import LIST_UNREADABLE
from actors.bus.messages.specs import ListRef
from actors.forwarding.access import named_lists
from actors.forwarding.access.named_lists import NamedListFiles
from actors.lists.databases import store_database
from actors.lists.files import compile_entries
from actors.problems import ActiveProblems
from config.net.entries import ListHost
from tests.kit.place_databases import country, database
from tests.kit.wait import wait_until

ADS = ListHost("ads")


class Stage:
    """Lists in a folder, with the loop that they need."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.loop = Loop()
        self.problems = ActiveProblems(self.loop, lambda: 0.0)
        self.lists = NamedListFiles(self.loop, self.problems, folder)
        self.changes = 0
        self.lists.on_changed = self.changed

    def changed(self) -> None:
        self.changes += 1

    def ref(self, *entries: str, kind: str = "domains", name: str = "ads") -> ListRef:
        return ListRef("list_1", name, 1, kind, compile_entries(self.folder, "list_1", kind, entries))

    def matches(self, name: str) -> str | None:
        found = self.lists.find(ADS)
        assert found is not None
        return found.by_name(name)

    @property
    def has_problem(self) -> bool:
        return f"{LIST_UNREADABLE} ads" in repr(self.problems)

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        def turned() -> bool:
            self.loop.turn(0.01)
            return condition()

        wait_until(turned, what, pause=0.0)

    def pass_time(self, seconds: float) -> None:
        self.loop.now += seconds


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.lists.close()
    made.loop.close()


def in_germany(stage: Stage, address: str) -> str | None:
    found = stage.lists.find(ListHost("world", "country", "DE"))
    assert found is not None
    return found.by_address(ip_address(address))


def database_ref(stage: Stage, *networks: str) -> ListRef:
    content = database({each: country("DE") for each in networks})
    name, _entries = store_database(iter([content]), stage.folder, "list_2", 0)
    return ListRef("list_2", "world", 1, "geo", name)


def test_a_database_of_places_is_read_and_replaced_as_any_list(stage: Stage) -> None:
    stage.lists.configure([database_ref(stage, "192.0.2.0/24")])
    assert stage.lists.judges_addresses(ListHost("world", "country", "DE"))
    assert in_germany(stage, "192.0.2.7") == "192.0.2.0/24"
    stage.lists.configure([database_ref(stage, "198.51.100.0/24")])
    assert (in_germany(stage, "192.0.2.7"), in_germany(stage, "198.51.100.7")) == (None, "198.51.100.0/24")
    assert stage.changes == 1


def test_an_entry_of_another_kind_finds_nothing_that_can_be_read(stage: Stage) -> None:
    """The API accepts no such entry; were there one, it would deny what it may."""
    stage.lists.configure([stage.ref("ads.example"), database_ref(stage, "192.0.2.0/24")])
    assert stage.lists.find(ListHost("world")) is None
    assert stage.lists.find(ListHost("ads", "country", "DE")) is None
    assert in_germany(stage, "192.0.2.7")
    assert stage.matches("ads.example")


def test_a_list_is_read_at_its_first_use(stage: Stage) -> None:
    stage.lists.configure([stage.ref("ads.example")])
    assert "none" in repr(stage.lists)
    assert stage.matches("www.ads.example") == "ads.example"
    assert "ads" in repr(stage.lists)
    assert not stage.lists.judges_addresses(ADS)
    stage.lists.configure([stage.ref("192.0.2.0/24", kind="networks")])
    assert stage.lists.judges_addresses(ADS)


def test_another_content_takes_the_place_of_the_one_that_is_used(stage: Stage) -> None:
    stage.lists.configure([stage.ref("ads.example")])
    stage.lists.configure([stage.ref("other.example")])
    assert stage.changes == 0, "nothing was decided by the first"
    assert stage.matches("ads.example") is None
    stage.lists.configure([stage.ref("third.example")])
    assert (stage.changes, stage.matches("third.example")) == (1, "third.example")
    stage.lists.configure([stage.ref("third.example")])
    assert stage.changes == 1


def test_a_large_content_is_read_in_a_thread_while_the_old_one_holds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(named_lists, "READ_AT_ONCE", 0)
    stage.lists.configure([stage.ref("ads.example")])
    assert stage.matches("ads.example")
    stage.lists.configure([stage.ref("second.example")])
    stage.lists.configure([stage.ref("third.example")])
    assert stage.matches("ads.example"), "the loop has not turned"
    stage.wait(lambda: stage.matches("third.example") is not None, "the last content")
    assert stage.changes == 1, "the one between is not used"


def test_a_list_without_content_is_a_problem_until_it_has_some(stage: Stage) -> None:
    stage.lists.configure([ListRef("list_1", "ads", 1, "domains")])
    assert stage.lists.find(ADS) is None
    assert stage.has_problem
    stage.lists.configure([stage.ref("ads.example")])
    assert stage.matches("ads.example")
    assert not stage.has_problem


def test_a_file_that_is_not_there_is_tried_again(stage: Stage) -> None:
    ref = stage.ref("ads.example")
    (stage.folder / ref.file).rename(stage.folder / "away")
    stage.lists.configure([ref])
    assert stage.lists.find(ADS) is None
    assert stage.has_problem
    (stage.folder / "away").rename(stage.folder / ref.file)
    assert stage.lists.find(ADS) is None, "not at every request"
    stage.pass_time(named_lists.RETRY)
    assert stage.matches("ads.example")
    assert not stage.has_problem


def test_a_damaged_new_content_leaves_the_old_one(stage: Stage) -> None:
    first, second = stage.ref("ads.example"), stage.ref("other.example")
    path = stage.folder / second.file
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    stage.lists.configure([first])
    assert stage.matches("ads.example")
    stage.lists.configure([second])
    assert stage.matches("ads.example")
    assert stage.has_problem
    path.write_bytes(whole)
    stage.lists.configure([stage.ref("third.example")])
    assert stage.matches("third.example")
    assert not stage.has_problem


def test_a_list_that_is_gone_or_another_one_of_its_name_is_not_used_on(stage: Stage) -> None:
    stage.lists.configure([stage.ref("ads.example")])
    assert stage.matches("ads.example")
    stage.lists.configure([])
    assert stage.lists.find(ADS) is None
    assert stage.has_problem
    name = compile_entries(stage.folder, "list_2", "domains", ["b.example"])
    stage.lists.configure([ListRef("list_2", "ads", 1, "domains", name)])
    assert (stage.matches("ads.example"), stage.matches("b.example")) == (None, "b.example")
    assert not stage.has_problem
    stage.lists.configure([ListRef("list_3", "ads", 1, "domains", "list_3-gone")])
    assert stage.lists.find(ADS) is None, "it can't be read, and the one before it is another list"
