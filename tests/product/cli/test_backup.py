"""Backups of a running product, and restores: onto nothing, over another state, of damaged archives, and killed."""

from __future__ import annotations

import gzip
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.audit.trail import Head, verify
from api.backup import atomic_swap, create, restore
from api.backup.archive import BadArchive, open_archive
from api.backup.create import create_backup
from api.store import open_store
from config.files.durable import DATA_FORMAT, Mark, read_mark, write_mark
from config.files.paths import DataDir
from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.product.cli.sites import PASSPHRASE, Site, crafted, forget, header, members_of, rebuilt


def test_a_backup_is_private_and_has_no_secret_in_the_clear(site: Site) -> None:
    file = site.backup()
    assert file.stat().st_mode & 0o777 == 0o600
    content = gzip.decompress(file.read_bytes())
    key = (site.data.keys / "secrets.key").read_bytes().strip()
    for secret in (key, b"sesame 1", b"sesame 2", PASSPHRASE.encode()):
        assert secret not in content
    names = members_of(file)
    assert names[:2] == ["manifest.json", "keys.sealed"]
    assert {"fleet.sqlite", "webhooks/outbox.sqlite"} <= set(names)
    assert not [name for name in names if name.startswith(("logs/", "keys/", "idempotency/")) or name.endswith("-wal")]
    assert [name for name in members_of(site.backup("l.tar.gz", "--with-logs")) if name.startswith("logs/")]


def test_a_dry_run_says_what_differs_and_touches_nothing(site: Site) -> None:
    file = site.backup()
    forget(site)
    before = {path: path.read_bytes() for path in site.data.path.glob("fleet.sqlite*")}
    printed = site.restore(file, "--dry-run")
    assert printed.status == 0
    assert "added\tproxies\tplain" in printed.out
    assert "chained" not in printed.out
    assert {path: path.read_bytes() for path in site.data.path.glob("fleet.sqlite*")} == before
    assert not (site.data.path / atomic_swap.RESTORING).exists()


def test_what_was_removed_and_changed_is_back_and_the_state_in_between_is_kept(site: Site) -> None:
    file = site.backup()
    forget(site)
    site.data.account_sessions.parent.mkdir(exist_ok=True)
    site.data.account_sessions.touch()
    assert site.names() == ["chained"]
    assert site.restore(file).status == 2  # there is no terminal to ask at
    done = site.restore(file, "--yes")
    assert done.status == 0, done.err
    assert site.names() == ["chained", "plain"]
    assert not site.data.account_sessions.exists(), "sign-ins of holders hold no longer"
    (kept,) = site.data.path.glob("before-restore-*")
    assert Site(site.folder, kept).names() == ["chained"]
    assert str(kept) in done.out
    found = verify(site.data)
    assert isinstance(found, Head)
    rows = site.shell.process("audit", "verify").out
    assert rows.startswith("The audit trail is intact")


@pytest.mark.product
def test_onto_a_new_machine_the_product_starts_with_everything(original: Path, folder: Path) -> None:
    shutil.copytree(original, folder / "data")
    file = Site(folder, folder / "data").backup()
    product = Product()
    new = Site(folder, product.data_dir)
    assert new.restore(file, "--yes").status == 0
    with product:
        proxies = {proxy["name"]: proxy for proxy in product.data("GET", "/proxies")["proxies"]}
        assert proxies.keys() == {"chained", "plain"}
        audit = product.data("GET", "/audit?action=backup.restored")["audit"]
        assert [row["actor"]["type"] for row in audit] == ["command_line"]
        assert product.data("GET", "/webhooks")["webhooks"][0]["name"] == "h"


@pytest.mark.product
def test_a_backup_while_everything_changes_is_of_one_moment(product: Product, folder: Path) -> None:
    """Proxies are made in pairs, the second after the first's response: no backup has a second without its first."""
    site = Site(folder, product.data_dir)
    over, made = threading.Event(), []

    def change() -> None:
        for number in range(200):
            for half in ("a", "b"):
                body = {"name": f"{number}-{half}", "port": free_port(), "protocol": "http"}
                made.append(product.data("POST", "/proxies", body)["proxy"]["id"])
                product.data("POST", f"/proxies/{made[-1]}/stop")
            if over.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        files = [site.backup(f"{number}.tar.gz") for number in range(3)]
    finally:
        over.set()
        thread.join()
        for each in made:
            product.data("DELETE", f"/proxies/{each}")
    for file in files:
        with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as new:
            there = Site(Path(new), Path(new) / "data")
            assert there.restore(file, "--yes").status == 0
            names = set(there.names())
            assert all(f"{name[:-1]}a" in names for name in names if name.endswith("b"))
            assert isinstance(verify(there.data), Head)


def test_what_is_only_in_the_log_of_the_file_is_in_the_backup(site: Site, folder: Path) -> None:
    """As after a kill, or while the product runs."""
    store = open_store(site.data)
    (plain,) = (document for document in store.find("proxies") if document.body["name"] == "plain")
    store.delete("proxies", plain.id)
    log = site.data.path / "fleet.sqlite-wal"
    assert log.stat().st_size
    file = site.backup()
    store.close()
    new = Site(folder, folder / "new")
    assert new.restore(file, "--yes").status == 0
    assert new.names() == ["chained"]


def test_without_keys_it_is_good_where_they_are_and_nowhere_else(site: Site, folder: Path) -> None:
    made = site.shell.good("backup", str(folder / "k.tar.gz"), "--without-keys")
    assert "the key files are not in it" in made.err
    forget(site)
    assert site.shell("restore", str(folder / "k.tar.gz"), "--yes").status == 0
    assert site.names() == ["chained", "plain"]
    elsewhere = Site(folder, folder / "elsewhere")
    refused = elsewhere.shell("restore", str(folder / "k.tar.gz"), "--yes")
    assert refused.status == 1
    assert f"{elsewhere.data.keys} don't open its secrets" in refused.err
    assert "--without-secrets" in refused.err
    assert "Nothing was changed" in refused.err


@pytest.mark.parametrize("with_keys", [False, True])
def test_without_its_secrets_it_is_restored_on_another_machine_and_the_lost_ones_are_listed(
    site: Site, folder: Path, with_keys: bool
) -> None:
    file = site.backup() if with_keys else folder / "b.tar.gz"
    if not with_keys:
        site.shell.good("backup", str(file), "--without-keys")
    elsewhere = Site(folder, folder / "elsewhere")
    done = elsewhere.shell("restore", str(file), "--without-secrets", "--yes", "-o", "json")
    assert done.status == 0, done.err
    lost = json.loads(done.out)["lost_secrets"]
    assert lost == [
        {"kind": "proxies", "name": "chained", "field": "upstreams[0].auth.password"},
        {"kind": "webhooks", "name": "h", "field": "secret"},
        {"kind": "webhooks", "name": "h", "field": "headers.X-Secret"},
    ]
    assert elsewhere.names() == ["chained", "plain"]
    again = elsewhere.shell("restore", str(elsewhere.backup("again.tar.gz")), "--dry-run", "-o", "json")
    assert again.status == 2  # its own keys are in that one, so it asks for the passphrase


@pytest.mark.product
def test_restored_without_its_secrets_the_product_starts_and_sends_with_a_new_one(original: Path, folder: Path) -> None:
    shutil.copytree(original, folder / "data")
    file = Site(folder, folder / "data").backup()
    product = Product()
    Site(folder, product.data_dir).shell.good("restore", str(file), "--without-secrets", "--yes")
    with product:
        assert {proxy["name"] for proxy in product.data("GET", "/proxies")["proxies"]} == {"chained", "plain"}
        (hook,) = product.data("GET", "/webhooks")["webhooks"]
        assert product.data("POST", f"/webhooks/{hook['id']}/rotate-secret")["webhook"]["secret"].startswith("whsec_")


@pytest.mark.product
def test_a_dry_run_compares_with_a_product_that_runs(product: Product, site: Site, folder: Path) -> None:
    file = site.backup()
    newer = product.proxy(name="newer")
    running = Site(folder, product.data_dir)
    before = sorted(product.data_dir.iterdir())
    compared = running.restore(file, "--dry-run")
    assert compared.status == 0, compared.err
    assert "removed\tproxies\tnewer" in compared.out
    assert "added\tproxies\tplain" in compared.out
    assert sorted(product.data_dir.iterdir()) == before
    assert running.restore(file, "--yes").status == 1
    product.data("DELETE", f"/proxies/{newer['id']}")


def test_unattended_the_keys_are_sealed_when_there_is_a_passphrase_and_left_out_else(site: Site, folder: Path) -> None:
    target = str(folder / "u.tar.gz")
    assert site.shell("backup", target).status == 2  # there is no terminal to ask at
    assert site.shell.good("backup", target, "--unattended", "-o", "json").data["keys"] is False
    (folder / "backup-passphrase").write_text(PASSPHRASE)
    given = {"CREDENTIALS_DIRECTORY": str(folder)}
    assert site.shell.good("backup", target, "--unattended", "-o", "json", **given).data["keys"] is True
    assert site.restore(Path(target), "--dry-run").status == 0


def test_another_passphrase_is_refused(site: Site) -> None:
    file = site.backup()
    site.secret.write_text("another passphrase\n")
    refused = site.restore(file, "--yes")
    assert (refused.status, "another passphrase" in refused.err) == (1, True)
    site.secret.write_text("short\n")
    assert "at least 12 characters" in site.restore(file).err


def altered_manifest(**values: Any) -> Callable[[dict[str, bytes]], None]:
    def change(members: dict[str, bytes]) -> None:
        members["manifest.json"] = json.dumps({**json.loads(members["manifest.json"]), **values}).encode()

    return change


def altered_store(members: dict[str, bytes]) -> None:
    members["fleet.sqlite"] = members["fleet.sqlite"].replace(b"admin", b"nimda")


def escaping(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["manifest.json"])
    manifest["files"][0]["path"] = "lists/../../evil"
    members["manifest.json"] = json.dumps(manifest).encode()


def unnamed(members: dict[str, bytes]) -> None:
    members["lists/extra.json"] = b"{}"


def shortened(members: dict[str, bytes]) -> None:
    del members["fleet.sqlite"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (altered_manifest(format=2), "format 2 of a later release"),
        (altered_manifest(kind="other"), "its manifest is invalid"),
        (altered_manifest(product="9.9"), "can't be opened"),  # the seal covers the manifest
        (altered_store, "fleet.sqlite is damaged"),
        (escaping, "which can't be in a backup"),
        (unnamed, "is not as the manifest says"),
        (shortened, "is not as the manifest says"),
    ],
)
def test_an_archive_that_was_altered_is_refused_and_nothing_is_touched(
    site: Site, change: Callable[[dict[str, bytes]], None], words: str
) -> None:
    file = rebuilt(site.backup(), site.folder / "altered.tar.gz", change)
    forget(site)
    refused = site.restore(file, "--yes")
    assert (refused.status, words in refused.err or "cut short" in refused.err) == (1, True), refused.err
    assert site.names() == ["chained"]
    assert not (site.data.path / atomic_swap.RESTORING).exists()
    assert not (site.folder / "evil").exists()


@pytest.mark.parametrize(
    "values",
    [
        {"header": header(**{"GNU.sparse.map": "a,b", "GNU.sparse.size": "1"})},
        {"header": header(**{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "x"})},
        {"header": header(tarfile.XHDTYPE, 2**30)},  # a gibibyte that would be read into memory for a name
        {"header": header(tarfile.GNUTYPE_LONGNAME, 2**30)},
        {"header": header(tarfile.SYMTYPE)},
        {"sealed": b"[" * 200_000},
        {"sealed": b'{"n": 1e400}'},
        {"folders": ["lists", "lists"]},
    ],
)
def test_an_archive_that_was_made_to_do_harm_is_refused_like_any_other(folder: Path, values: dict[str, Any]) -> None:
    file = crafted(folder / "crafted.tar.gz", **values)
    data = DataDir(folder / "data")
    data.path.mkdir()
    refused = "is not as the manifest|not a whole archive|keys are damaged|contradicts itself"
    with pytest.raises(BadArchive, match=refused), open_archive(file) as archive:
        restore.prepare_restore(data, archive, "a passphrase for it").__enter__()
    assert list(data.path.iterdir()) == []


@pytest.mark.parametrize("part", [0.0, 0.01, 0.5, 0.999])
def test_an_archive_that_was_cut_short_is_refused(site: Site, part: float) -> None:
    file = site.backup()
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * part)])
    refused = site.restore(file, "--yes")
    assert refused.status == 1, refused.out
    assert "Traceback" not in refused.err
    assert site.names() == ["chained", "plain"]


def test_a_bit_anywhere_in_the_archive_is_found_or_does_not_matter(site: Site) -> None:
    file = site.backup()
    content = bytearray(file.read_bytes())
    for position in range(20, len(content) - 8, len(content) // 12):
        turned = bytearray(content)
        turned[position] ^= 16
        file.write_bytes(turned)
        read = site.restore(file, "--dry-run")
        status = 0 if _unpacks_to_the_same(bytes(turned), bytes(content)) else 1
        assert (read.status, "Traceback" in read.err) == (status, False), position


def _unpacks_to_the_same(turned: bytes, content: bytes) -> bool:
    """Say whether the bit changed nothing: a run of zeros may be copied from any place before it that has zeros."""
    try:
        return gzip.decompress(turned) == gzip.decompress(content)
    except (OSError, EOFError, zlib.error):
        return False


def test_while_the_product_runs_nothing_is_restored(site: Site) -> None:
    file = site.backup()
    lock = subprocess.Popen(
        [sys.executable, "-c", LOCKER, str(site.data.lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert lock.stdout is not None
    assert lock.stdin is not None
    lock.stdout.readline()
    refused = site.restore(file, "--yes")
    lock.communicate(b"\n")
    assert (refused.status, f"in use by process {lock.pid}" in refused.err) == (1, True)


LOCKER = """
import sys
from pathlib import Path
from config.files.paths import lock
lock(Path(sys.argv[1]), "x")
print("held", flush=True)
sys.stdin.readline()
"""

RENAMES = 17
"""So many does a restore make from the one that decides it on: it, two for each of seven names, one for the contents of
lists, which there are none of before, one to keep the old."""

KILLED = """
import os, signal, sys
from pathlib import Path
from typer.testing import CliRunner
from api.backup import restore  # what the command loads when it needs it, once for all children
from api.cli.application import application
application = application()
left, decided, renamed = 0, False, Path.rename
def rename(self, target):
    global left, decided
    decided = decided or self.name == "new"
    if decided and left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= decided
    return renamed(self, target)
Path.rename = rename
root, file, *moments = sys.argv[1:]
for left in map(int, moments):
    child = os.fork()
    if child == 0:
        arguments = ["restore", file, "--yes", "--data-dir", f"{root}/{left}/data"]
        os._exit(CliRunner().invoke(application, arguments).exit_code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def test_a_restore_that_is_killed_at_a_rename_leaves_the_old_state_or_the_new_one(site: Site) -> None:
    """At the one that decides; between the two of a name, and of two names; before the last; and not at all."""
    moments = [0, 1, 2, 3, RENAMES - 2, RENAMES - 1, RENAMES]
    file = site.folder / "k.tar.gz"
    site.shell.good("backup", str(file), "--without-keys")
    forget(site)
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as root:
        for left in moments:
            shutil.copytree(site.data.path, Path(root) / str(left) / "data")
        command = [sys.executable, "-c", KILLED, root, str(file), *map(str, moments)]
        ended = subprocess.run(command, env=site.shell.env, capture_output=True, text=True, timeout=300)
        assert ended.returncode == 0, ended.stderr
        assert [int(line) for line in ended.stdout.split()] == [-signal.SIGKILL] * (len(moments) - 1) + [0]
        seen = []
        for left in moments:
            here = Site(Path(root) / str(left), Path(root) / str(left) / "data")
            here.shell.good("reset-settings")  # the next command completes it, or removes it
            assert not (here.data.path / atomic_swap.RESTORING).exists()
            assert isinstance(verify(here.data), Head)
            seen.append(here.names())
    old, new = ["chained"], ["chained", "plain"]
    assert seen == [old, *[new] * (len(moments) - 1)]


def test_a_backup_that_fails_leaves_no_archive(site: Site) -> None:
    site.data.fleet.write_bytes(b"SQLite format 3\x00" + b"\xff" * 5000)
    failed = site.shell("backup", str(site.folder / "b.tar.gz"), "--without-keys")
    assert (failed.status, "there is no new archive" in failed.err) == (1, True)
    assert sorted(path.name for path in site.folder.iterdir() if path.name.startswith((".b", "b"))) == []


def test_of_backups_with_the_time_in_their_name_the_newest_are_kept(site: Site) -> None:
    target = site.folder / "backups"
    target.mkdir()
    for name in ("proxyfleet-20200101T000000Z.tar.gz", "proxyfleet-20210101T000000Z.tar.gz", "other.tar.gz"):
        (target / name).touch()
    site.shell.good("backup", str(target), "--without-keys", "--keep", "2")
    left = sorted(path.name for path in target.iterdir())
    assert (len(left), left[:2]) == (3, ["other.tar.gz", "proxyfleet-20210101T000000Z.tar.gz"])


def test_an_older_state_of_the_store_is_read_whole(site: Site) -> None:
    with open_archive(site.backup()) as archive:
        assert archive.manifest.folders == ("metrics", "webhooks", "lists")
        assert archive.manifest.total == sum(member.size for member in archive.manifest.files)


# --- data of other formats ---


def test_over_data_that_a_newer_release_has_written_an_older_backup_is_the_way_back(site: Site) -> None:
    file = site.backup()
    forget(site)
    write_mark(site.data.path, Mark(9, "0.9.0"))
    assert "have format 9" in site.shell("reset-settings").err
    restored = site.restore(file, "--yes")
    assert restored.status == 0, restored.err
    assert site.names() == ["chained", "plain"]
    assert read_mark(site.data.path) == Mark(DATA_FORMAT)


def test_a_backup_of_another_format_is_refused_and_nothing_is_touched(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(create, "DATA_FORMAT", 9)
        create_backup(site.data, site.folder / "other.tar.gz", PASSPHRASE, with_logs=False)
    refused = site.restore(site.folder / "other.tar.gz", "--yes")
    assert refused.status == 1
    assert f"its data have format 9, and this release reads format {DATA_FORMAT}: restore it with" in refused.err
    assert site.names() == ["chained", "plain"]


def test_a_directory_that_is_not_there_does_not_become_a_file(site: Site) -> None:
    missing = site.folder / "new"
    refused = site.shell("backup", str(missing), "--without-keys", "--keep", "30")
    assert (refused.status, missing.exists()) == (2, False)
    assert f"{missing}: there is no such directory" in refused.err
    assert "mkdir -p" in refused.err
    file = site.folder / "x.tgz"
    assert "--keep: TARGET must be a directory" in site.shell("backup", str(file), "--without-keys", "--keep", "2").err
    site.shell.good("backup", str(file), "--without-keys")
