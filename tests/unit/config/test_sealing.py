"""Secrets on the disk: sealed with the key of a file, opened with no other."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from config.files.secret_box import SecretBox, SecretBoxError

SECRET = "hunter2 — with an umlaut: ü"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "secrets.key"


def test_a_sealed_secret_opens_again_also_after_a_restart(file: Path) -> None:
    sealed = SecretBox(file).seal(SECRET, "p")
    assert "hunter2" not in sealed
    assert SecretBox(file).open(sealed, "p") == SECRET


def test_the_key_file_is_made_once_and_is_private(file: Path) -> None:
    SecretBox(file).ensure()
    before = file.read_bytes()
    SecretBox(file).ensure()
    assert file.read_bytes() == before
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_one_secret_sealed_twice_is_two_texts(file: Path) -> None:
    seal = SecretBox(file)
    assert seal.seal(SECRET, "p") != seal.seal(SECRET, "p")


def test_a_missing_key_file_is_named_and_none_is_made_in_its_place(file: Path) -> None:
    sealed = SecretBox(file).seal(SECRET, "p")
    file.unlink()
    with pytest.raises(SecretBoxError, match=r"secrets\.key: missing"):
        SecretBox(file).open(sealed, "p")
    assert not file.exists()


def test_another_key_is_distinguished_from_a_damaged_secret(file: Path, tmp_path: Path) -> None:
    seal = SecretBox(file)
    sealed = seal.seal(SECRET, "p")
    with pytest.raises(SecretBoxError, match="missing"):
        SecretBox(tmp_path / "other.key").open(sealed, "p")
    other = SecretBox(tmp_path / "other" / "other.key")
    other.ensure()
    with pytest.raises(SecretBoxError, match="another key"):
        other.open(sealed, "p")
    damaged = sealed[:-4] + ("AAAA" if sealed[-4:] != "AAAA" else "BBBB")
    with pytest.raises(SecretBoxError, match="damaged"):
        seal.open(damaged, "p")


def test_a_secret_can_not_stand_in_for_one_of_another_purpose(file: Path) -> None:
    seal = SecretBox(file)
    with pytest.raises(SecretBoxError, match="something else"):
        seal.open(seal.seal(SECRET, "a webhook"), "a parent")


@pytest.mark.parametrize(
    "text", ["", "hunter2", "sealed:1:", "sealed:1:0000", "sealed:1:00000000:!", "sealed:2:a:AAAA"]
)
def test_what_is_no_sealed_secret_is_refused(file: Path, text: str) -> None:
    SecretBox(file).ensure()
    with pytest.raises(SecretBoxError):
        SecretBox(file).open(text, "p")


@pytest.mark.parametrize("content", ["", "not hex", "00ff"])
def test_a_key_file_that_holds_no_key_is_named(file: Path, content: str) -> None:
    file.parent.mkdir(mode=0o700)
    file.write_text(content)
    with pytest.raises(SecretBoxError, match=r"secrets\.key"):
        SecretBox(file).seal(SECRET, "p")
