"""The lock of a directory when its file goes away in the moment at which it is taken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from config.files import paths


def test_a_lock_file_that_was_removed_meanwhile_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by a restore into a new directory that came to nothing: two must not each hold a lock of their own."""
    file, try_, removed = tmp_path / "lock", paths._try, []

    def remove_and_try(descriptor: int) -> bool:
        if not removed:
            removed.append(os.fstat(descriptor).st_ino)
            file.unlink()
        return try_(descriptor)

    monkeypatch.setattr(paths, "_try", remove_and_try)
    descriptor = paths.lock(file, "directory")
    monkeypatch.undo()
    assert file.read_text() == f"{os.getpid()}\n"
    with pytest.raises(paths.LockedError):
        paths.lock(file, "directory")
    os.close(descriptor)
