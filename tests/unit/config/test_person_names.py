"""Names that are confusable with others are refused, and spellings of one name are one."""

from __future__ import annotations

import re

import pytest

from config.model import json_patterns
from config.model.fields import name_key, new_name
from tests.kit.tables import table

GOOD = ("admin", "Ada Lovelace", "o'neil-2", "josé", "Ωμέγα", "иван", "山田太郎", "山田 taro", "김철수")
REFUSED = {
    "a blank behind": ("admin ", "blank"),
    "a blank before": ("\u00a0admin", "blank"),
    "an invisible one within": ("ad\u200bmin", "not seen"),
    "one that turns the direction": ("\u202enimda", "not seen"),
    "a joiner": ("a\u200dd", "not seen"),
    "a filler": ("admin\u3164", "not seen"),
    "a soft hyphen": ("ad\u00admin", "not seen"),
    "a selector": ("admin\ufe0f", "not seen"),
    "Cyrillic among Latin": ("\u0430dmin", "Cyrillic, Latin"),
    "Greek among Latin": ("admin\u03bf", "Greek, Latin"),
    "Cherokee among Latin": ("\u13aada", "Cherokee, Latin"),
}


@table("name", GOOD)
def test_a_name_of_one_script_is_taken_as_it_is(name: str) -> None:
    assert new_name(name) == name
    assert re.fullmatch(json_patterns.PERSON_NAME, name)


@table(("name", "why"), REFUSED.values(), ids=REFUSED)
def test_a_name_that_is_not_what_it_looks_like_is_refused(name: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        new_name(name)


@pytest.mark.parametrize("name", ["\uff41dmin", "e\u0301", "\u212b"])
def test_compatibility_forms_are_folded(name: str) -> None:
    folded = new_name(name)
    assert folded != name
    assert new_name(folded) == folded
    assert name_key(name) == name_key(folded) == name_key(folded.upper())
