"""Taking a change back out of a document: what came after it stays, and a third value stands in the way."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.import_export.undoing import Reversal
from tests.kit.tables import table

A, B, C, D = ({"name": name, "use": "deny"} for name in "abcd")
DIRECT = {"name": "b", "use": "direct"}
HOP = {"name": "up", "protocol": "http", "host": "one", "port": 1, "username": "u", "password": "sealed-1", "weight": 1}


def reversal(before: Any, after: Any, present: Any, kept: bool = True) -> tuple[Any, list[tuple[str, ...]]]:
    found = Reversal(present_passwords=kept)
    return found.value(before, after, present), found.conflicts


@table(
    ("before", "after", "present", "expected"),
    [
        ({"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1, "y": 1}}, {"a": {"x": 2, "y": 1}}, {"a": {"x": 2, "y": 3}}, {"a": {"x": 1, "y": 3}}),
        ({"a": {}}, {"a": {"new": 1}}, {"a": {"new": 1, "later": 2}}, {"a": {"later": 2}}),
        ({"a": {"old": 1}}, {"a": {}}, {"a": {"later": 2}}, {"a": {"later": 2, "old": 1}}),
        ({"a": 1}, {"a": 2}, {"a": 1}, {"a": 1}),
        ({"tags": ["x"]}, {"tags": ["x", "y"]}, {"tags": ["w", "x", "y", "z"]}, {"tags": ["w", "x", "z"]}),
        ({"tags": ["x", "y"]}, {"tags": ["x"]}, {"tags": ["w", "x", "z"]}, {"tags": ["w", "x", "y", "z"]}),
        ({"tags": ["x"]}, {"tags": ["x", "y"]}, {"tags": ["x"]}, {"tags": ["x"]}),
        ({"rules": [A, B]}, {"rules": [A, DIRECT]}, {"rules": [C, A, DIRECT]}, {"rules": [C, A, B]}),
        ({"rules": [A, B, C]}, {"rules": [A, C]}, {"rules": [A, D, C]}, {"rules": [A, B, D, C]}),
        ({"rules": [B, C]}, {"rules": [A, B, C]}, {"rules": [A, B, DIRECT | {"name": "c"}]}, None),
        ({"rules": [A, B, C]}, {"rules": [C, A, B]}, {"rules": [C, D, A, B]}, {"rules": [A, B, C, D]}),
        ({"rules": [A, B, C]}, {"rules": [C, A, B]}, {"rules": [A, B, C, D]}, {"rules": [A, B, C, D]}),
    ],
)
def test_what_came_after_it_stays(before: Any, after: Any, present: Any, expected: Any) -> None:
    if expected is None:
        expected = {"rules": [B, {"name": "c", "use": "direct"}]}
    assert reversal(before, after, present) == (expected, [])


@table(
    ("before", "after", "present", "conflicts"),
    [
        ({"a": 1, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 2}, [("a",)]),
        ({"a": {"x": 1}}, {"a": {"x": 2}}, {"a": {"x": 3}}, [("a", "x")]),
        ({"a": None}, {"a": {"x": 1, "y": 1}}, {"a": {"x": 1, "y": 2}}, [("a", "y")]),
        ({"a": 1}, {"a": 2}, {}, [("a",)]),
        ({"rules": [A, B]}, {"rules": [A, DIRECT]}, {"rules": [A, B | {"use": "pool:x"}]}, [("rules", "[b]", "use")]),
        ({"rules": [A, B]}, {"rules": [A, DIRECT]}, {"rules": [A]}, [("rules", "[b]")]),
        ({"rules": [A]}, {"rules": [A, B]}, {"rules": [A, DIRECT]}, [("rules", "[b]", "use")]),
        ({"rules": [A, B]}, {"rules": [A]}, {"rules": [A, DIRECT]}, [("rules", "[b]", "use")]),
        ({"rules": [A, B, C]}, {"rules": [C, A, B]}, {"rules": [B, C, A]}, [("rules",)]),
        ({"windows": [{"from": 1}]}, {"windows": [{"from": 2}]}, {"windows": [{"from": 3}]}, [("windows",)]),
        ({"tags": ["x", "x"]}, {"tags": ["x"]}, {"tags": ["x", "y"]}, [("tags",)]),
        (
            {"upstreams": [HOP]},
            {"upstreams": [HOP | {"password": "sealed-2"}]},
            {"upstreams": [HOP | {"password": "sealed-2", "host": "two"}]},
            [("upstreams", "[up]", "host")],
        ),
        (
            {"source": {"url": "https://a.example/", "headers": {"X-Key": "sealed-1"}, "format": "csv"}},
            {"source": {"url": "https://a.example/", "headers": {"X-Key": "sealed-2"}, "format": "csv"}},
            {"source": {"url": "https://b.example/", "headers": {"X-Key": "sealed-2"}, "format": "csv"}},
            [("source", "url")],
        ),
    ],
)
def test_a_third_value_stands_in_the_way(before: Any, after: Any, present: Any, conflicts: Any) -> None:
    assert reversal(before, after, present)[1] == conflicts
    assert reversal(before, after, after) == (before, [])
    assert reversal(before, after, before) == (before, [])


def test_an_upstream_gets_its_former_password_for_the_same_place_alone() -> None:
    later = HOP | {"password": "sealed-2", "verify": False}
    assert reversal({"upstreams": [HOP]}, {"upstreams": [HOP | {"password": "sealed-2"}]}, {"upstreams": [later]}) == (
        {"upstreams": [HOP | {"verify": False}]},
        [],
    )


@pytest.mark.parametrize("kept", [True, False])
def test_a_password_that_was_changed_again_stands_in_the_way_only_where_it_would_come_back(kept: bool) -> None:
    documents = [{"auth": {"password_hash": each}, "accounts": []} for each in ("one", "two", "three")]
    assert reversal(*documents, kept)[1] == ([] if kept else [("auth", "password_hash")])
    account = [{"password_hash": each, "renewal_hash": ""} for each in ("one", "two", "three")]
    assert reversal(*account, kept)[1] == ([] if kept else [("password_hash",)])


LEAVES = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "x", "y"])
TEXTS = st.lists(st.sampled_from("uvwxyz"), max_size=4)
RULES = st.lists(st.fixed_dictionaries({"name": st.sampled_from("abcde"), "use": LEAVES, "match": TEXTS}), max_size=4)
VALUES = st.recursive(
    LEAVES | TEXTS, lambda inner: st.dictionaries(st.sampled_from("pqrs"), inner, max_size=3), max_leaves=8
)
DOCUMENTS = st.dictionaries(st.sampled_from("pqrs"), VALUES, max_size=4).flatmap(
    lambda fields: st.builds(lambda rules: {**fields, "rules": rules}, RULES)
)


@given(DOCUMENTS, DOCUMENTS, st.integers())
def test_the_newest_change_is_taken_back_whole_and_beside_another_field(before: Any, after: Any, later: int) -> None:
    assert reversal(before, after, after) == (before, [])
    assert reversal(before, after, after | {"later": later}) == (before | {"later": later}, [])
    found, conflicts = reversal(before, after, before)
    assert (found, conflicts) == (before, [])


@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_of_any_three_documents_either_comes_a_document_or_a_conflict_with_a_path(a: Any, b: Any, c: Any) -> None:
    found, conflicts = reversal(a, b, c)
    assert isinstance(found, dict)
    assert all(path for path in conflicts)
    if a == b:
        assert (found, conflicts) == (c, [])
