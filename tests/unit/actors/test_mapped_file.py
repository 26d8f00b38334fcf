"""Mapped files: complete or not there at all, and known by format, kind and boot."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors import mapped_file
from actors.mapped_file import MARK, make_file, map_file, mark


def whole(size: int) -> bool:
    return size == 64


def nothing(_raw: memoryview) -> None:
    pass


def test_a_file_is_made_with_what_was_written_and_two_that_map_it_share_it(tmp_path: Path) -> None:
    def fill(raw: memoryview) -> None:
        assert not (tmp_path / "f").exists(), "it has its name when it is complete"
        raw[:2] = b"ab"

    made = make_file(tmp_path / "f", 64, fill)
    reader = map_file(tmp_path / "f", whole, writes=False)
    assert reader is not None
    assert reader.readonly
    assert bytes(reader) == b"ab".ljust(64, b"\0")
    writer = map_file(tmp_path / "f", whole)
    assert writer is not None
    writer[63] = 7
    assert (made[63], reader[63]) == (7, 7)


def test_one_that_is_absent_or_has_another_size_is_none(tmp_path: Path) -> None:
    assert map_file(tmp_path / "f", whole) is None
    make_file(tmp_path / "f", 72, nothing)
    assert map_file(tmp_path / "f", whole) is None


def test_one_that_can_not_be_completed_leaves_the_older_one_and_nothing_else(tmp_path: Path) -> None:
    def fail(_raw: memoryview) -> None:
        raise OSError("full")

    make_file(tmp_path / "f", 64, nothing)
    with pytest.raises(OSError, match="full"):
        make_file(tmp_path / "f", 72, fail)
    assert [each.name for each in tmp_path.iterdir()] == ["f"]
    assert map_file(tmp_path / "f", whole) is not None


def test_a_mark_is_of_one_format_kind_and_boot(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = {mark(b"format\0\1"), mark(b"format\0\2"), mark(b"format\0\1", b"kind")}
    monkeypatch.setattr(mapped_file, "boot_id", lambda: b"another")
    marks.add(mark(b"format\0\1"))
    assert len(marks) == 4
    assert {len(each) for each in marks} == {MARK}
