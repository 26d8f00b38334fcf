"""Files that are whole and on the disk: in which order, and what stays when it fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from actors.telemetry.otlp_client import read_identity
from config.files.durable import replace_file, replace_file_of_user


def test_the_content_is_synced_before_the_name_is_given_and_the_name_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, seen, real = tmp_path / "file", [], os.fsync
    replace_file(file, b"before")

    def fsync(descriptor: int) -> None:
        seen.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, file.read_bytes()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    replace_file(file, b"after")
    assert seen == [("file.new", b"before"), (tmp_path.name, b"after")]
    assert file.stat().st_mode & 0o777 == 0o600


def test_an_identity_that_can_not_be_made_durable_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(_descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error"):
        read_identity(tmp_path / "telemetry")
    assert not (tmp_path / "telemetry" / "identity.json").exists()


def test_in_a_users_folder_no_other_file_is_touched_and_nothing_is_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, file = tmp_path / "file.new", tmp_path / "file"
    other.write_text("of the user")
    replace_file_of_user(file, b"before")

    def fsync(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space left"):
        replace_file_of_user(file, b"after")
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"file": "before", "file.new": "of the user"}
    assert file.stat().st_mode & 0o777 == 0o600
