"""Columns of texts: which rows have one of some values, however the codes of the values are stored."""

from __future__ import annotations

import random

from actors.logs.columns import DictionaryColumn
from tests.kit.tables import table

FEW = ["", "10.0.0.1", "10.0.0.11", "0.0.1", "10.0.0.1 ", "é"]
MANY = [f"10.0.{number // 250}.{number % 250}" for number in range(400)]
SHAPES = {
    "a byte for each": [random.Random(1).choice(FEW) for _ in range(500)],
    "two bytes for each": [random.Random(2).choice(MANY) for _ in range(1000)] + MANY,
    "all differ": MANY,
    "one row": [""],
    "one value": ["x"] * 9,
}


@table("wanted", [{""}, {"10.0.0.1"}, {"10.0.0.1", "10.0.0.11", "0.0.1"}, {"é"}, {"x"}, {"\udc80"}])
@table("shape", SHAPES)
@table("stored", [False, True])
def test_the_rows_with_one_of_these_values_are_found_and_no_others(shape: str, wanted: set[str], stored: bool) -> None:
    column = SHAPES[shape]
    texts = DictionaryColumn.of(column)
    if stored:
        texts = DictionaryColumn.deserialize(texts.serialize())
    expected = bytes(value in wanted for value in column)
    assert texts.equal_to(wanted) == (expected if any(expected) else None)
