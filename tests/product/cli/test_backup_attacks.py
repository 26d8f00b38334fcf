"""Backups and restores after mistakes of operators, on a full disk, and of hostile archives."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import hashlib
import json
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from api.audit.trail import Head, verify
from api.backup import archive, atomic_swap, create, restore
from api.backup.archive import BadArchive, open_archive, seal_keys, unseal_keys
from api.cli.local import backup as restore_command
from api.security import tokens, users
from api.security.users import ADMINISTRATOR
from api.store import open_store
from api.store.rows import sum_of
from config.files.durable import Mark, write_mark
from config.files.paths import DataDir
from config.passwords import hash_password
from tests.product.cli.sites import PASSPHRASE, Site, crafted, forget, header, rebuilt


@pytest.fixture(autouse=True)
def _usual_mask() -> Iterator[None]:
    """As shells have it: others may read files without a mode of their own."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def seen(folder: Path) -> dict[str, Any]:
    """All of a data directory with modes and times, but for the lock and the time of the directory itself."""
    return {str(path.relative_to(folder)): _seen(path) for path in folder.rglob("*") if path.name != "lock"}


def _seen(path: Path) -> tuple[int, int, bytes | None]:
    status = path.stat()
    return status.st_mode, status.st_mtime_ns, path.read_bytes() if path.is_file() else None


# --- where an archive goes ---


def test_a_file_that_is_no_backup_is_not_replaced_by_one(site: Site) -> None:
    precious = site.folder / "config.toml"
    precious.write_text("precious")
    refused = site.shell("backup", str(precious), "--without-keys")
    assert (refused.status, "is no backup" in refused.err) == (1, True)
    assert precious.read_text() == "precious"


def test_a_pipe_and_a_link_are_not_replaced_by_a_backup(site: Site) -> None:
    os.mkfifo(site.folder / "pipe")
    (site.folder / "link").symlink_to(site.folder / "elsewhere")
    for name, words in (("pipe", "is no backup"), ("link", "is a symbolic link")):
        refused = site.shell("backup", str(site.folder / name), "--without-keys")
        assert (refused.status, words in refused.err) == (1, True), refused.err
    assert stat.S_ISFIFO((site.folder / "pipe").stat().st_mode)
    assert (site.folder / "link").is_symlink()


def test_an_older_backup_and_an_empty_file_are_replaced(site: Site) -> None:
    file = site.backup()
    forget(site)
    assert site.backup() == file
    (site.folder / "empty").touch()
    site.backup("empty")
    new = Site(site.folder, site.folder / "new")
    assert new.restore(file, "--yes").status == 0
    assert new.names() == ["chained"]


@pytest.mark.parametrize("where", [".", "metrics", "keys"])
def test_into_the_data_directory_nothing_is_backed_up(site: Site, where: str) -> None:
    (site.folder / "way").symlink_to(site.data.path / where)
    for place in (site.data.path / where / "b.tar.gz", site.data.path / where, site.folder / "way"):
        refused = site.shell("backup", str(place), "--without-keys")
        assert (refused.status, "inside of the data directory" in refused.err) == (1, True), refused.err
    assert not list(site.data.path.rglob("*.gz"))


def test_a_disk_that_is_full_is_named_and_leaves_what_was_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    file = site.backup()
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(create, "_fleet", full)
    failed = site.shell("backup", str(file), "--without-keys")
    assert failed.status == 1
    assert f"the disk of {site.folder} is full" in failed.err
    assert file.read_bytes() == before
    assert not list(site.folder.glob(".proxyfleet-*"))


def test_a_directory_that_is_not_there_is_named(site: Site) -> None:
    failed = site.shell("backup", str(site.folder / "no" / "b.tar.gz"), "--without-keys")
    assert f"{site.folder / 'no'}: there is no such directory" in failed.err


def test_what_a_killed_backup_left_is_cleared_away_by_the_next_unless_someone_works_there(site: Site) -> None:
    left, busy = site.folder / ".proxyfleet-backup-left", site.folder / ".proxyfleet-backup-busy"
    for folder in (left, busy):
        folder.mkdir()
        (folder / "users.json").touch()
        os.utime(folder, (time.time() - 3600, time.time() - 3600))
    descriptor = os.open(busy, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    site.backup()
    os.close(descriptor)
    assert (left.exists(), busy.exists()) == (False, True)


def test_to_a_file_system_that_locks_no_folders_a_backup_is_made(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """As NFS."""
    (site.folder / ".proxyfleet-backup-left").mkdir()
    os.utime(site.folder / ".proxyfleet-backup-left", (0, 0))

    def refuse(*_: object) -> None:
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    with monkeypatch.context() as patched:
        patched.setattr(create.fcntl, "flock", refuse)
        file = site.backup()
    assert (site.folder / ".proxyfleet-backup-left").exists()
    assert site.restore(file, "--dry-run").status == 0


def test_the_new_archive_is_kept_though_the_clock_went_back(site: Site) -> None:
    backups = site.folder / "backups"
    backups.mkdir()
    (backups / "proxyfleet-29990101T000000Z.tar.gz").touch()
    made = site.shell.good("backup", str(backups), "--without-keys", "--keep", "1", "-o", "json").data
    assert [str(path) for path in backups.iterdir()] == [made["file"]]


def test_an_older_archive_that_cannot_be_removed_is_no_failed_backup(site: Site) -> None:
    backups = site.folder / "backups"
    (backups / "proxyfleet-20200101T000000Z.tar.gz").mkdir(parents=True)
    ran = site.shell("backup", str(backups), "--without-keys", "--keep", "1")
    assert (ran.status, "is complete, but an older archive can't be removed" in ran.err) == (1, True), ran.err
    (made,) = (path for path in backups.iterdir() if path.is_file())
    assert site.restore(made, "--dry-run").status == 0


# --- what is in it ---


def test_files_that_editors_leave_in_the_store_make_no_archive_that_is_refused(site: Site) -> None:
    for name in ("users.json~", ".nfs0001", "#users.json#"):
        (site.data.metrics / name).touch()
    new = Site(site.folder, site.folder / "new")
    assert new.restore(site.backup(), "--yes").status == 0
    assert new.names() == ["chained", "plain"]


def test_of_a_damaged_store_no_archive_is_made_that_would_lose_its_last_change(site: Site) -> None:
    file = site.data.fleet
    content = file.read_bytes()
    file.write_bytes(content.replace(b"plain", b"plane"))
    failed = site.shell("backup", str(site.folder / "b.tar.gz"), "--without-keys")
    assert failed.status == 1
    assert "fleet.sqlite: is damaged: the row proxies/" in failed.err
    assert not (site.folder / "b.tar.gz").exists()


def test_every_command_refuses_data_of_another_format_says_what_to_do_and_changes_nothing(site: Site) -> None:
    write_mark(site.data.path, Mark(9, "0.9.0"))
    before = seen(site.data.path)
    commands = (
        ("check-config",),
        ("audit", "verify"),
        ("reset-password", "admin"),
        ("reset-settings",),
        ("rotate-signing-key",),
        ("backup", str(site.folder / "b.tar.gz"), "--without-keys"),
    )
    there = "--data-dir", str(site.data.path)
    ended = {command: site.shell(*command, *there) for command in commands}
    ended["serve",] = site.shell.process("serve", *there)
    said = "have format 9, of Proxyfleet 0.9.0"
    wrong = {
        command: ran
        for command, ran in ended.items()
        if ran.status != 1 or said not in ran.err or "Install" not in ran.err
    }
    assert wrong == {}
    assert seen(site.data.path) == before
    assert not (site.folder / "b.tar.gz").exists()


def test_from_a_read_only_data_directory_a_backup_is_made_and_the_trail_verified(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = seen(site.data.path)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda _path, mode: mode != os.W_OK)  # as for root on such a file system
        file = site.backup()
        site.shell.good("audit", "verify")
    assert seen(site.data.path) == before  # SQLite would make files there
    assert site.restore(file, "--dry-run").status == 0


# --- what a restore leaves ---


def test_what_is_restored_is_private(site: Site) -> None:
    new = Site(site.folder, site.folder / "new")
    assert new.restore(site.backup("l.tar.gz", "--with-logs"), "--yes").status == 0
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in (new.data.path, *new.data.path.rglob("*"))}
    assert {path: mode for path, mode in modes.items() if mode != (0o700 if path.is_dir() else 0o600)} == {}


def test_a_dry_run_changes_no_file_and_no_time(site: Site) -> None:
    file = site.backup()
    forget(site)
    (site.data.fleet).write_bytes(b"damaged")
    for left in site.data.path.rglob("*-shm"):
        left.unlink()
    before = seen(site.data.path)
    assert site.restore(file, "--dry-run").status == 0
    assert seen(site.data.path) == before


@pytest.mark.parametrize("name", ["new", "deep/er/new"])
def test_a_restore_that_does_nothing_leaves_no_new_directory(site: Site, name: str) -> None:
    file = site.backup()
    new = Site(site.folder, site.folder / name)
    assert new.restore(file, "--dry-run").status == 0
    site.secret.write_text("another passphrase\n")
    assert new.restore(file, "--yes").status == 1
    assert new.restore(site.secret, "--yes").status == 1
    assert not (site.folder / name.partition("/")[0]).exists()


def test_in_an_empty_directory_a_refused_restore_leaves_nothing_and_a_good_one_keeps_nothing(site: Site) -> None:
    file = site.backup()
    new = Site(site.folder, site.folder / "new")
    new.data.path.mkdir()
    assert new.restore(site.secret, "--yes").status == 1
    assert list(new.data.path.iterdir()) == []
    done = new.restore(file, "--yes")
    assert (done.status, "There were no earlier data" in done.out) == (0, True)
    assert list(new.data.path.glob("before-*")) == []


def test_without_a_difference_nothing_is_restored_unless_it_is_forced(site: Site) -> None:
    file = site.backup()
    before = seen(site.data.path)
    idle = site.restore(file, "--yes")
    assert (idle.status, "Nothing to restore" in idle.out) == (0, True)
    assert seen(site.data.path) == before
    forced = site.restore(file, "--yes", "--force", "-o", "json")
    assert forced.data["restored"] is True
    assert Path(forced.data["kept"]).is_dir()


def test_other_keys_and_a_broken_audit_trail_are_differences(site: Site) -> None:
    (site.data.keys / "metrics-curve.key").write_text("1" * 64)
    file = site.backup()
    (site.data.keys / "metrics-curve.key").write_text("0" * 64)
    with closing(sqlite3.connect(site.data.fleet)) as database, database:
        database.execute("DROP TRIGGER audit_is_not_cut")
        database.execute("DELETE FROM audit WHERE seq = 1")
    printed = site.restore(file, "--dry-run")
    assert [row[:3] for row in printed.rows[1:3]] == [
        ["changed", "keys", "metrics-curve.key"],
        ["added", "audit", "trail"],
    ]


def test_of_states_before_restores_the_newest_two_are_kept(site: Site) -> None:
    file = site.backup()
    for name in ("20200101T000000Z", "20210101T000000Z", "29990101T000000Z"):
        (site.data.path / f"before-restore-{name}").mkdir()
    forget(site)
    done = site.restore(file, "--yes", "-o", "json")
    kept = sorted(path.name for path in site.data.path.glob("before-*"))
    assert kept == sorted(["before-restore-29990101T000000Z", Path(done.data["kept"]).name])


@pytest.mark.parametrize(("password", "stays"), [("the first one", True), ("a later one", False)])
def test_the_first_password_stays_in_its_file_if_it_is_good_after_the_restore(
    site: Site, password: str, stays: bool
) -> None:
    store = open_store(site.data)
    user = users.by_name(store, ADMINISTRATOR)
    assert user is not None
    changed = user.model_copy(update={"password_hash": hash_password("the first one")})
    store.put(users.COLLECTION, changed.model_dump(mode="json"))
    store.close()
    file = site.backup()
    forget(site)
    site.data.initial_password.write_text(password + "\n")
    assert site.restore(file, "--yes").status == 0
    assert site.data.initial_password.exists() == stays
    (kept,) = site.data.path.glob("before-restore-*")
    assert DataDir(kept).initial_password.read_text() == password + "\n"


def test_who_signed_out_after_the_backup_stays_signed_out_after_the_restore(site: Site) -> None:
    store = open_store(site.data)
    found = store.find(tokens.COLLECTION)
    families, hashes = [document.id for document in found], [document.body["secret_hash"] for document in found]
    assert families
    store.close()
    file = site.backup()
    store = open_store(site.data)
    for family in families:
        store.delete(tokens.COLLECTION, family)
    store.close()
    forget(site)
    assert site.restore(file, "--yes").status == 0
    store = open_store(site.data)
    assert store.find(tokens.COLLECTION) == []
    store.close()
    for file in site.data.path.glob("fleet.sqlite*"):
        assert hashes[0].encode() not in file.read_bytes(), file


def test_revisions_that_were_given_out_after_the_backup_are_not_given_out_again(site: Site) -> None:
    file = site.backup()
    for _ in range(3):
        store = open_store(site.data)
        (proxy,) = (each for each in store.find("proxies") if each.body["name"] == "plain")
        given_out = store.put("proxies", {**proxy.body, "tags": ["t"]}).revision
        store.close()
    assert site.restore(file, "--yes").status == 0
    store = open_store(site.data)
    assert store.put("proxies", {**proxy.body, "tags": ["u"]}).revision > given_out
    store.close()


def test_a_folder_that_is_mounted_is_refused_before_anything_is_decided(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.backup()
    forget(site)
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path) == site.data.metrics)
    refused = site.restore(file, "--yes")
    assert (refused.status, f"{site.data.metrics} is a mount point" in refused.err) == (1, True)
    assert site.names() == ["chained"]


def test_the_way_back_that_an_interrupted_restore_decided_is_completed_before_another(site: Site) -> None:
    file = site.backup()
    forget(site)
    with open_archive(file) as archive, restore.prepare_restore(site.data, archive, PASSPHRASE):
        (site.data.path / atomic_swap.RESTORING / "new").rename(site.data.path / atomic_swap.RESTORING / "ready")
    refused = site.restore(file, "--dry-run")
    assert (refused.status, "a restore was interrupted" in refused.err) == (1, True)
    idle = site.restore(file, "--yes")
    assert (idle.status, "Nothing to restore" in idle.out) == (0, True)
    assert "has been completed" in idle.err
    assert site.names() == ["chained", "plain"]


def test_a_directory_of_another_account_is_refused_and_the_account_named(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.backup()
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    for command in (("restore", str(file), "--yes"), ("backup", str(site.folder / "c.tar.gz")), ("reset-settings",)):
        refused = site.shell(*command)
        assert (refused.status, "Run the command as the user of the product" in refused.err) == (1, True), refused.err


# --- archives that mean harm ---


def test_keys_that_want_more_memory_than_a_backup_ever_takes_are_refused(site: Site) -> None:
    def costly(members: dict[str, bytes]) -> None:
        members["keys.sealed"] = json.dumps({**json.loads(members["keys.sealed"]), "n": 2**20}).encode()

    refused = site.restore(rebuilt(site.backup(), site.folder / "c.tar.gz", costly), "--dry-run")
    assert (refused.status, "n=1048576 would take 1.00 GB" in refused.err) == (1, True), refused.err


def test_keys_of_a_release_that_seals_twice_as_hard_are_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # of the fixture: with the usual work
    monkeypatch.setattr(archive, "N", 2 * archive.N)
    sealed = seal_keys({"a.key": b"x"}, PASSPHRASE, b"")
    monkeypatch.undo()
    assert unseal_keys(sealed, PASSPHRASE, b"") == {"a.key": b"x"}


def test_what_follows_the_end_of_an_archive_is_not_unpacked_for_ever(site: Site) -> None:
    file = site.backup()
    with file.open("ab") as end:
        end.write(gzip.compress(bytes(8 * 2**20)))
    refused = site.restore(file, "--dry-run")
    assert (refused.status, "something follows its end" in refused.err) == (1, True), refused.err


LONG_NAME = header(tarfile.GNUTYPE_LONGNAME, 1).tobuf(tarfile.GNU_FORMAT) + b"x".ljust(512, b"\0")
HOLES = bytearray(header(tarfile.GNUTYPE_SPARSE).tobuf(tarfile.GNU_FORMAT))
HOLES[482] = 1  # more of its map follows
HOLES[148:156] = b"%06o\0 " % tarfile.calc_chksums(bytes(HOLES))[0]
MORE_HOLES = b"00000000001\0" * 42 + b"\1".ljust(8, b"\0")


@pytest.mark.parametrize("rest", [LONG_NAME * 5000, bytes(HOLES), bytes(HOLES) + MORE_HOLES * 5000])
def test_headers_that_go_on_about_headers_or_holes_are_refused(folder: Path, rest: bytes) -> None:
    file = crafted(folder / "c.tar.gz")
    content = gzip.decompress(file.read_bytes())
    manifest = content[: content.rindex(b"}") + 1]
    file.write_bytes(gzip.compress(manifest.ljust(-(-len(manifest) // 512) * 512, b"\0") + rest))
    with contextlib.ExitStack() as stack:
        archive = stack.enter_context(open_archive(file))
        with pytest.raises(BadArchive, match="is not as the manifest says"):
            archive.extract(folder)


def with_member(name: str, content: bytes) -> Callable[[dict[str, bytes]], None]:
    """An archive whose maker knew how to make it whole again."""

    def change(members: dict[str, bytes]) -> None:
        manifest = json.loads(members["manifest.json"])
        for each in manifest["files"]:
            if each["path"] == name:
                each.update(size=len(content), sha256=hashlib.sha256(content).hexdigest())
        members.update({name: content, "manifest.json": json.dumps(manifest).encode()})

    return change


def with_body(collection: str, identifier: str, body: str) -> Callable[[dict[str, bytes]], None]:
    """An archive whose maker has put this text in the place of a document."""

    def change(members: dict[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "fleet.sqlite"
            file.write_bytes(members["fleet.sqlite"])
            with closing(sqlite3.connect(file)) as database, database:
                database.execute("UPDATE steps SET revision = 999")
                database.execute(
                    "REPLACE INTO documents (collection, id, revision, sum, body) VALUES (?, ?, 999, ?, ?)",
                    [collection, identifier, sum_of(collection, identifier, 999, body.encode()), body],
                )
            with_member("fleet.sqlite", file.read_bytes())(members)

    return change


@pytest.mark.parametrize(
    ("collection", "identifier", "body", "words"),
    [
        ("users", "a", "{", "isn't JSON"),
        ("users", "a", "[" * 100_000, "isn't JSON"),
        ("users", "a", "[]", "is no document"),
        ("users", "a", '"x"', "is no document"),
        ("users", "a", "{}", "User: id is required\n"),
        ("settings", "settings", '{"server": {"port": "x"}}', "server.port"),
    ],
)
def test_documents_that_are_none_are_refused_in_one_line(
    site: Site, collection: str, identifier: str, body: str, words: str
) -> None:
    site.shell.good("backup", str(site.folder / "k.tar.gz"), "--without-keys")
    crafted_ = rebuilt(site.folder / "k.tar.gz", site.folder / "c.tar.gz", with_body(collection, identifier, body))
    refused = site.restore(crafted_, "--yes")
    assert (refused.status, words in refused.err, refused.err.count("\n")) == (1, True, 2), refused.err
    assert site.names() == ["chained", "plain"]


@pytest.mark.parametrize("moment", [-1e18, 1e12, 1e300])
def test_an_archive_of_an_impossible_time_is_refused(folder: Path, moment: float) -> None:
    with (
        pytest.raises(BadArchive, match="its manifest is invalid"),
        open_archive(crafted(folder / "c", created_at=moment)),
    ):
        pass


def test_the_archive_that_was_read_is_on_record_though_another_took_its_name(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = site.backup()
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    forget(site)

    def exchange(*_: object) -> None:
        (site.folder / "other").write_text("other")
        (site.folder / "other").rename(file)

    monkeypatch.setattr(restore_command, "confirm", exchange)
    assert site.restore(file).status == 0
    assert digest.encode() in site.data.fleet.read_bytes()


def test_an_archive_that_needs_more_than_there_is_says_how_much(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    file = site.backup()
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: shutil._ntuple_diskusage(2**30, 2**30, 2**20))
    refused = site.restore(file, "--yes")
    assert refused.status == 1
    assert "64.00 MB to be left over, and 1.00 MB are free" in refused.err


def test_a_pipe_is_no_archive(site: Site) -> None:
    os.mkfifo(site.folder / "pipe")
    assert "is not a regular file" in site.restore(site.folder / "pipe").err


def test_the_restored_audit_trail_is_whole_and_knows_the_one_that_was_replaced(site: Site) -> None:
    file = site.backup()
    before = verify(site.data)
    assert isinstance(before, Head)
    forget(site)
    assert site.restore(file, "--yes").status == 0
    (kept,) = site.data.path.glob("before-restore-*")
    assert verify(DataDir(kept)) == before
    assert f"{before.seq}:{before.hash}".encode() in site.data.fleet.read_bytes()
