"""Differences of two entries: an entry of a list is known by its name, and one that was moved is one difference."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from api.import_export.diff import Difference, differences
from tests.kit.tables import table

NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True)


def found(before: str, after: str) -> list[Difference]:
    old, new = ({"rules": [{"name": name, "use": "deny"} for name in names]} for names in (before, after))
    return differences(old, new)


@table(
    ("before", "after", "moved"),
    [
        ("abcd", "dabc", [("d", 4, 1)]),
        ("abcd", "bcda", [("a", 1, 4)]),
        ("ab", "ba", [("b", 2, 1)]),
        ("abc", "cba", [("c", 3, 1), ("b", 2, 2)]),
        ("abcd", "acd", []),
        ("bcd", "abcd", []),
    ],
)
def test_a_rule_that_is_moved_is_one_difference(before: str, after: str, moved: list[tuple[str, int, int]]) -> None:
    places = [each for each in found(before, after) if each.field.endswith(".place")]
    assert places == [Difference(f"rules[{name}].place", *where) for name, *where in moved]


@given(NAMES, NAMES)
def test_without_those_that_are_moved_the_order_is_the_same(before: list[str], after: list[str]) -> None:
    moved = {each.field for each in found("".join(before), "".join(after)) if each.field.endswith(".place")}
    both = {name for name in before if name in after and f"rules[{name}].place" not in moved}
    assert [name for name in before if name in both] == [name for name in after if name in both]
