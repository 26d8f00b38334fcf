"""The contents of lists: compiled before they are stored, checked, and made anew where they are missing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from actors.lists.compiled import CompiledList
from api.errors import Invalid
from api.objects.named.list_contents import ListContents, ListState, ListStates
from config.model.shared_objects.lists import DestinationList, ListSource
from tests.kit.tables import table


def a_list(*entries: str, **fields: Any) -> DestinationList:
    plain: dict[str, Any] = {"id": "list_01", "name": "ads", "kind": "domains", "created_at": 0, "updated_at": 0}
    return DestinationList(**{**plain, "entries": list(entries), **fields})


@pytest.fixture
def contents(tmp_path: Path) -> ListContents:
    return ListContents(ListStates(tmp_path / "lists"))


def current(contents: ListContents, record: DestinationList) -> CompiledList:
    return CompiledList(contents.states.folder / contents.states.current_file(record))


def test_another_content_leaves_the_one_that_is_mapped(contents: ListContents) -> None:
    contents.prepare(a_list("ads.example"))
    first = current(contents, a_list("ads.example"))
    changed = a_list("other.example", updated_at=1)
    contents.prepare(changed)
    assert current(contents, changed).by_name("www.other.example") == "other.example"
    assert first.by_name("www.ads.example") == "ads.example"


@table(
    ("target", "entry"),
    [
        ("WWW.ads.example.", "ads.example"),
        ("https://a.b.tracker.example/x?y", "tracker.example"),
        ("tracker.example:443", "tracker.example"),
        ("example", None),
        ("notads.example", None),
        ("192.0.2.1", None),
        ("\u0430ds.example", None),
        ("B\u00dcCHER.example", "xn--bcher-kva.example"),
    ],
)
def test_check_names_the_domain(contents: ListContents, target: str, entry: str | None) -> None:
    record = a_list("ads.example", "tracker.example", "xn--bcher-kva.example")
    contents.prepare(record)
    assert contents.check(record, target).entry == entry


@table(
    ("target", "entry"),
    [
        ("10.1.2.3", "10.1.0.0/16"),
        ("[::ffff:10.2.0.1]:443", "10.0.0.0/8"),
        ("2001:db8::1", "2001:db8::/32"),
        ("192.0.2.1", None),
    ],
)
def test_check_names_the_network(contents: ListContents, target: str, entry: str | None) -> None:
    record = a_list("10.0.0.0/8", "10.1.0.0/16", "2001:db8::/32", kind="networks")
    contents.prepare(record)
    assert contents.check(record, target).entry == entry
    with pytest.raises(Invalid, match="must have an IP address"):
        contents.check(record, "example.com")


@table("target", ["", "a b", "ftp://x/", "\U0001f600..x", "127.1"])
def test_check_of_no_target_is_refused(contents: ListContents, target: str) -> None:
    record = a_list("ads.example")
    contents.prepare(record)
    with pytest.raises(Invalid) as refused:
        contents.check(record, target)
    assert refused.value.field == "target"


def test_the_status_of_a_list(contents: ListContents) -> None:
    own = {"fetched_at": None, "next_at": None, "last_error": None, "skipped": 0, "skipped_examples": []}
    assert contents.status(a_list("ads.example")) == {"entries": 1, **own}
    assert contents.warnings(a_list("ads.example")) == []
    assert [each.field for each in contents.warnings(a_list())] == ["entries"]
    fetched = a_list(source=ListSource(url="https://lists.example/"))
    assert [each.field for each in contents.warnings(fetched)] == ["source"]
    with pytest.raises(Invalid, match="no content yet"):
        contents.check(fetched, "a.example")
    state = ListState(kind="domains", file="x", entries=3, skipped=1, examples=[(2, "a b", "why")], fetched_at=1.5)
    contents.states.put(fetched.id, state)
    status = contents.status(fetched)
    assert (status["entries"], status["fetched_at"]) == (3, "1970-01-01T00:00:01.500Z")
    assert status["skipped_examples"] == [{"line": 2, "text": "a b", "reason": "why"}]
    assert contents.states.current_file(fetched) == "x"
    assert contents.states.current_file(fetched.model_copy(update={"kind": "networks"})) == "", "of another kind"


def test_missing_files_are_made_and_those_of_no_list_are_deleted(contents: ListContents) -> None:
    record = a_list("ads.example")
    contents.prepare(record)
    path = contents.states.folder / contents.states.current_file(record)
    path.write_bytes(path.read_bytes()[:-1])
    others = [
        contents.states.folder / name for name in ("list_00ff-aa.list", "list_00ff.json", ".list_00ff-aa.list-bb")
    ]
    for other in others:
        other.write_bytes(b"")
        os.utime(other, (0, 0))
    young = contents.states.folder / "list_00ee-aa.list"
    young.write_bytes(b"")
    assert contents.settle([record]) == [record.id]
    assert current(contents, record).by_name("ads.example") == "ads.example"
    assert not any(other.exists() for other in others)
    assert young.exists(), "its list may be about to be stored"
    assert contents.settle([record]) == []
