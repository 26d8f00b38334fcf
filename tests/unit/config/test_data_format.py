"""The format of a data directory: new ones are marked, those of another release are refused and stay as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from config import VERSION
from config.files.durable import DATA_FORMAT, DataFormatError, Mark, mark_new, read_mark, write_mark
from tests.kit.tables import table

UNCLEAR = ("", "1", "{}", "[]", '{"format": "1", "version": "1"}', '{"format": 0, "version": "1"}')
UNCLEAR += ('{"format": true, "version": "1"}', '{"format": 1, "version": 1}', "\xff")


def test_a_new_directory_is_marked_and_the_mark_stays(tmp_path: Path) -> None:
    assert read_mark(tmp_path) is None
    mark_new(tmp_path)
    assert read_mark(tmp_path) == Mark(DATA_FORMAT, VERSION)
    write_mark(tmp_path, Mark(DATA_FORMAT, "0.0.9"))
    mark_new(tmp_path)
    assert read_mark(tmp_path) == Mark(DATA_FORMAT, "0.0.9")


@table("number", [DATA_FORMAT - 1, DATA_FORMAT + 1])
def test_another_format_is_refused_with_the_remedy_and_not_touched(tmp_path: Path, number: int) -> None:
    write_mark(tmp_path, Mark(number, "0.4.0"))
    before = (tmp_path / "format").read_bytes()
    reason = rf"format {number}, of Proxyfleet 0\.4\.0.*reads format {DATA_FORMAT}\. Install 0\.4\.0, or"
    with pytest.raises(DataFormatError, match=reason):
        mark_new(tmp_path)
    assert (tmp_path / "format").read_bytes() == before


def test_a_mark_that_says_nothing_is_refused(tmp_path: Path) -> None:
    found = {}
    for text in UNCLEAR:
        (tmp_path / "format").write_text(text, encoding="latin-1")
        try:
            mark_new(tmp_path)
        except DataFormatError as error:
            found[text] = str(error)
    assert found == dict.fromkeys(
        UNCLEAR, f"{tmp_path / 'format'}: does not say which format the data have; restore it from a backup"
    )


def test_a_directory_that_cannot_be_read_or_written_is_an_error_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "format").mkdir()
    with pytest.raises(DataFormatError, match="format: Is a directory"):
        mark_new(tmp_path)
    with pytest.raises(DataFormatError, match="format: No such file"):
        mark_new(tmp_path / "absent")
