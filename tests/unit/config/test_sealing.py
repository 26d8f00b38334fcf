"""Secrets on the disk: sealed with the key of a file, opened with no other."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from config.files.secret_box import SealedFor, SecretBox, SecretBoxError, mark_of, marks_in, new_key

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


# --- several keys ---


@pytest.fixture
def two(file: Path) -> tuple[SecretBox, str, str]:
    """A seal with a second key behind the first, and the marks of both."""
    seal, key = SecretBox(file), new_key()
    seal.ensure()
    seal.add(key)
    return seal, seal.fingerprint, mark_of(key)


def test_the_first_of_several_keys_seals_and_each_opens_what_has_its_mark(two: tuple[SecretBox, str, str]) -> None:
    seal, old, new = two
    assert seal.marks == [old, new]
    before = seal.seal(SECRET, SealedFor.UPSTREAM)
    seal.use(new)
    after = seal.seal(SECRET, SealedFor.UPSTREAM)
    assert (marks_in(before), marks_in(f"{before} {after}"), seal.marks) == ({old}, {old, new}, [new, old])
    assert [seal.open(each, SealedFor.UPSTREAM) for each in (before, after)] == [SECRET, SECRET]
    seal.forget([old, new])
    assert (seal.marks, seal.opens(before, SealedFor.UPSTREAM)) == ([new], False)


def test_what_another_process_makes_of_the_keys_holds_at_the_next_use(two: tuple[SecretBox, str, str]) -> None:
    seal, old, new = two
    other = SecretBox(seal.path)
    assert other.marks == [old, new]
    seal.use(new)
    assert other.marks == [new, old]
    assert marks_in(other.seal(SECRET, SealedFor.DSN)) == {new}
    assert stat.S_IMODE(seal.path.stat().st_mode) == 0o600
    assert bytes.fromhex(other.exported())[:32].hex() == seal.path.read_text().split()[0]


@pytest.mark.parametrize("purpose", [each for each in SealedFor if each is not SealedFor.RESPONSE])
def test_a_secret_is_sealed_anew_for_whatever_it_was_sealed(
    two: tuple[SecretBox, str, str], purpose: SealedFor
) -> None:
    seal, _, new = two
    sealed = seal.seal(SECRET, purpose)
    anew = seal.sealed_anew(sealed, new)
    assert (marks_in(anew), seal.open(anew, purpose)) == ({new}, SECRET)
    with pytest.raises(SecretBoxError):
        seal.sealed_anew(sealed[:-4] + ("AAAA" if sealed[-4:] != "AAAA" else "BBBB"), new)


def test_keys_that_are_given_from_outside_are_used_and_never_changed(two: tuple[SecretBox, str, str]) -> None:
    seal, old, new = two
    given = SecretBox(seal.path, is_given=True)
    for change in (lambda: given.add(new_key()), lambda: given.use(new), lambda: given.forget([new])):
        with pytest.raises(SecretBoxError, match="given from outside"):
            change()
    given.use(old)
    assert given.marks == [old, new]


@pytest.mark.parametrize("key", ["", "no", "00ff", "00" * 33])
def test_what_is_no_key_is_not_taken(two: tuple[SecretBox, str, str], key: str) -> None:
    seal, old, new = two
    with pytest.raises(SecretBoxError, match="no key"):
        seal.add(key)
    assert seal.marks == [old, new]
