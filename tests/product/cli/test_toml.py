"""TOML that is written is read back as what it was."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from api.cli.documents import as_toml

TEXT = some.text(some.characters(exclude_categories=["Cs"]))
PLAIN = some.one_of(
    some.booleans(), some.integers(-(2**63), 2**63 - 1), some.floats(allow_nan=False, allow_infinity=False), TEXT
)
VALUE = some.recursive(PLAIN, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(TEXT, inner, max_size=3))


@given(some.dictionaries(TEXT, VALUE, max_size=4))
def test_every_document_is_read_back_as_it_was(document: dict[str, Any]) -> None:
    assert tomllib.loads(as_toml(document)) == document


def test_members_that_are_none_are_left_out_and_tables_come_last() -> None:
    text = as_toml({"a": None, "t": {"x": 1, "n": None}, "list": [{"b": 1}, {"b": 2}], "z": ["y" * 60, "w" * 60]})
    assert text.index("z = [\n") < text.index("[t]") < text.index("[[list]]")
    assert tomllib.loads(text) == {"t": {"x": 1}, "list": [{"b": 1}, {"b": 2}], "z": ["y" * 60, "w" * 60]}


def test_small_tables_of_an_entry_are_in_a_line_and_each_of_an_array_in_its_own() -> None:
    upstreams = [{"host": "h", "auth": {"username": "u", "password": None}}, {"host": "i", "labels": {"country": "de"}}]
    wide = {"name": "n" * 60, "description": "d" * 60}
    document = {
        "settings": {"logging": {"level": "info"}},
        "accounts": [{"username": "alice", "quota": {"bytes": 5, "period": "month"}, "limits": {}, "tags": ["a"]}],
        "pools": [{"name": "exits", "upstreams": upstreams, "check": wide, "rules": [{"a": 1}, wide]}],
    }
    assert (
        as_toml(document)
        == f"""\
[settings]
logging = {{ level = "info" }}

[[accounts]]
username = "alice"
quota = {{ bytes = 5, period = "month" }}
limits = {{}}
tags = ["a"]

[[pools]]
name = "exits"
upstreams = [
  {{ host = "h", auth = {{ username = "u" }} }},
  {{ host = "i", labels = {{ country = "de" }} }},
]

[pools.check]
name = "{"n" * 60}"
description = "{"d" * 60}"

[[pools.rules]]
a = 1

[[pools.rules]]
name = "{"n" * 60}"
description = "{"d" * 60}"
"""
    )


def test_none_in_an_array_is_refused() -> None:
    with pytest.raises(ValueError, match="NoneType"):
        as_toml({"a": [None]})
