"""`proxyfleet backup`: one archive with all data of the product. `proxyfleet restore` lists the differences, asks once,
and replaces all data or none."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import shlex
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from api.backup.archive import BadArchive, Manifest, OpenArchive, check_passphrase, open_archive
from api.backup.create import BadTarget, CollectError, create_backup, snapshot, staging
from api.backup.restore import PreparedRestore, commit, opened_backup, prepare_restore
from api.cli.commands import Given, Session, confirm
from api.cli.errors import CommandError, Status
from api.cli.local.shared import (
    STOPPED,
    data_of,
    finish_restore,
    open_own,
    require_own_directory,
    take_lock,
    translated,
)
from api.cli.quantities import decimal
from api.cli.terminal import Column, Output, progress
from api.cli.terminal import passphrase as ask_passphrase
from api.errors import Invalid
from api.store import StoreError
from config.files.durable import require_own_format
from config.files.paths import DataDir, holder
from config.files.secret_box import credential
from config.text.formatting import counted, timestamp_text

CREDENTIAL = "backup-passphrase"
"""Name of the credential of systemd (`LoadCredential=`)."""
SUFFIXES = (".tar.gz", ".tgz")
"""Suffixes of archives."""
_NAME = re.compile(r"proxyfleet-[0-9]{8}T[0-9]{6}Z\.tar\.gz")


COLUMNS = (Column("CHANGE", "change"), Column("KIND", "kind"), Column("NAME", "name"), Column("FIELDS", "fields"))
LISTED = 10
"""Differences that are listed before the question."""
LOST_COLUMNS = (Column("KIND", "kind"), Column("NAME", "name"), Column("FIELD", "field"))


@translated()
def backup(out: Output, target: Path, keep: int | None, passphrase_file: Path | None, fields: Given) -> None:
    """Write an archive, and remove older ones."""
    data = _own_data(fields["config"], fields["data_dir"])
    _check_place(target, keep)
    unavailable = fields["unattended"] and passphrase_file is None and credential(CREDENTIAL) is None
    passphrase = None if fields["without_keys"] or unavailable else passphrase_of(passphrase_file, twice=True)
    file = _file_at(target)
    try:
        with progress(out, "Backing up") as report:
            manifest, digest = create_backup(data, file, passphrase, fields["with_logs"], report)
    except (CollectError, BadTarget, OSError) as error:
        reason = f"{file.parent}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise CommandError(f"The backup failed, and there is no new archive: {reason}") from error
    removed = _remove_older(file, keep) if keep else []
    result = {"file": str(file), "sha256": digest, "keys": manifest.keys, "removed": removed}
    out.data(result, lambda: _print_made(out, file, manifest, digest, removed))


def _check_place(target: Path, keep: int | None) -> None:
    """Refuse a missing directory: it would become a file, which the next backup replaces. Raises `CommandError`."""
    if target.is_dir():
        return
    if not (target.exists() or target.is_symlink()) and not target.name.endswith(SUFFIXES):
        hint = f"Make it: mkdir -p {shlex.quote(str(target))}; the name of an archive ends in {' or '.join(SUFFIXES)}"
        raise CommandError(f"{target}: there is no such directory", hint, Status.USAGE)
    if keep is not None:
        raise CommandError("--keep: TARGET must be a directory, not a file", status=Status.USAGE)


def _file_at(target: Path) -> Path:
    name = time.strftime("proxyfleet-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime())
    return target / name if target.is_dir() else target


def _print_made(out: Output, file: Path, manifest: Manifest, digest: str, removed: list[str]) -> None:
    out.message(f"{file}: {counted(len(manifest.files), 'file')}, {decimal(file.stat().st_size)}, SHA-256 {digest}")
    for name in removed:
        out.message(f"removed: {name}")
    if not manifest.keys:
        out.note("note: the key files are not in it; without them its secrets can't be opened")


def _own_data(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory, if this user owns it: SQLite would leave files of another user there."""
    data = data_of(config, data_dir)
    require_own_format(data.path)
    if not data.fleet.is_file():
        raise CommandError(f"{data.path}: there is no configuration here", "Name its directory with --data-dir")
    if (data.path / "restoring" / "ready").is_dir():
        hint = "Start the product, which completes it; then back it up"
        raise CommandError(f"{data.path}: a restore was interrupted", hint)
    require_own_directory(data.path)
    return data


def passphrase_of(file: Path | None, twice: bool) -> str | None:
    """The passphrase from the file, from systemd's credential, or from a prompt. Raises `CommandError`."""
    text = ask_passphrase("Passphrase of the keys", file or credential(CREDENTIAL), twice)
    try:
        return check_passphrase(text)
    except ValueError as error:
        raise CommandError(str(error), status=Status.USAGE) from error


def _remove_older(made: Path, keep: int) -> list[str]:
    """Keep the newest archives with a time in their name, `made` among them whatever its time is."""
    folder = made.parent
    others = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.name != made.name)
    older = others[: max(0, len(others) + 1 - keep)]
    try:
        for name in older:
            (folder / name).unlink()
    except OSError as error:
        raise CommandError(f"{made} is complete, but an older archive can't be removed: {error}") from error
    return older


# --- restore ---


@translated()
def restore(out: Output, fields: Given) -> None:
    """Read and check the archive, list the differences, ask, and replace the data."""
    file: Path = fields["file"]
    with (
        _readable(file) as archive,
        _target(fields["config"], fields["data_dir"], fields["dry_run"]) as data,
        contextlib.ExitStack() as stack,
    ):
        passphrase = _passphrase_for(archive, fields)
        with progress(out, "Reading") as report:
            prepared = prepare_restore(data, archive, passphrase, report, fields["without_secrets"])
            found = stack.enter_context(prepared)
        if _confirmed(out, data, file, found, fields):
            _commit(out, data, found, archive.digest())


@translated()
def restore_to_fleet(session: Session, fields: Given) -> None:
    """Import the configuration of an archive into the running fleet: list the changes, ask, and make them.

    Its secrets are sealed for the way with a passphrase that is made for it.
    """
    from api.cli.remote.import_export import import_document
    from api.import_export.export import export, export_with_secrets, read_accounts
    from api.import_export.present_state import read_state

    file: Path = fields["file"]
    data = data_of(fields["config"], fields["data_dir"])
    require_own_directory(data.path)
    if fields["force"]:
        raise CommandError("--force is for a restore without --to-fleet", status=Status.USAGE)
    with _readable(file) as archive, staging(data.path) as folder, contextlib.ExitStack() as stack:
        passphrase = _passphrase_for(archive, fields)
        with progress(session.out, "Reading") as report:
            opened = opened_backup(data, archive, folder, passphrase, report)
            store, seal = stack.enter_context(opened)
        state, accounts = read_state(store), None
        try:
            accounts = read_accounts(store.accounts)
        except Invalid as error:
            session.out.note(f"note: accounts are left out: {error.error}")
        made = secrets.token_urlsafe(32)
        without = fields["without_secrets"]
        document = export(state, accounts) if without else export_with_secrets(state, accounts, seal, made)
    headers = {} if without else {"X-Passphrase": made}
    import_document(session, document, headers, {**fields, "prune": False})


@contextlib.contextmanager
def _readable(file: Path) -> Iterator[OpenArchive]:
    if file.exists() and not file.is_file():
        raise CommandError(
            f"{file}: is not a regular file", "An archive is read more than once; save it as a file first"
        )
    try:
        with open_archive(file) as archive:
            yield archive
    except BadArchive as error:
        raise CommandError(f"{file}: {error}", "Nothing was changed") from error
    except (OSError, StoreError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _passphrase_for(archive: OpenArchive, fields: Given) -> str | None:
    wanted = archive.manifest.keys and not fields["without_secrets"]
    return passphrase_of(fields["passphrase_file"], twice=False) if wanted else None


def _confirmed(out: Output, data: DataDir, file: Path, found: PreparedRestore, fields: Given) -> bool:
    """List the differences and ask. Returns False if there is nothing to do; raises `CommandError` after a no."""
    result, dry_run = _as_data(found), fields["dry_run"]
    if out.format != "json":
        made, files = result["created_at"], counted(len(found.manifest.files), "file")
        out.message(f"{file}: made {made} by release {found.manifest.product}, {files}, all intact.")
        list_changes(out, result["changes"], dry_run)
        if found.lost:
            out.message("These secrets are not restored; enter them again afterwards:")
            out.table(LOST_COLUMNS, result["lost_secrets"], "")
    if dry_run or not (result["changes"] or fields["force"]):
        why = "Nothing was changed." if dry_run else "Nothing to restore; --force replaces the data nevertheless."
        out.done({**result, "dry_run": dry_run}, why)
        return False
    confirm(f"Replace the data in {data.path}?", fields["yes"])
    return True


def list_changes(out: Output, changes: list[dict[str, Any]], dry_run: bool) -> None:
    """Each of them; of many, which a dry run has listed, only their numbers before the question."""
    if dry_run or len(changes) <= LISTED:
        out.table(COLUMNS, changes, "Configuration and keys do not differ.")
        return
    counted = Counter((each["kind"], each["change"]) for each in changes)
    numbers = ", ".join(f"{kind} {change}: {number}" for (kind, change), number in counted.items())
    out.message(f"{len(changes)} differences: {numbers}. --dry-run lists them.")


def _as_data(found: PreparedRestore) -> dict[str, Any]:
    """The result for programs, before the restore."""
    rows = [
        {"change": one.change, "kind": one.kind, "name": one.name, "fields": one.fields} for one in found.differences
    ]
    made = timestamp_text(found.manifest.created_at)
    lost = [{"kind": one.kind, "name": one.name, "field": one.field} for one in found.lost]
    described = {"created_at": made, "product": found.manifest.product, "changes": rows, "lost_secrets": lost}
    return {**described, "dry_run": False, "restored": False, "kept": None}


def _commit(out: Output, data: DataDir, found: PreparedRestore, digest: str) -> None:
    kept = commit(data, found, digest).kept
    earlier = f"The earlier data are kept in {kept}." if kept else "There were no earlier data."
    result = {**_as_data(found), "restored": True, "kept": kept and str(kept)}
    out.done(result, f"Restored; all users must sign in again. {earlier}")


# --- the target ---


@contextlib.contextmanager
def _target(config: Path | None, data_dir: Path | None, dry_run: bool) -> Iterator[DataDir]:
    """The data directory to restore into, locked until the end of the block. Raises `CommandError` if the product runs.

    A dry run only reads: while the product runs, it gets a private copy of the data.
    """
    data = data_of(config, data_dir)
    _require_alone(data)
    if dry_run and holder(data.lock) is not None:
        with _copied(data) as copy:
            yield copy
    else:
        with _locked(data, dry_run) as locked:
            yield locked


def _require_alone(data: DataDir) -> None:
    """Refuse a node of a fleet: what is restored has other commits than that."""
    if data.node.exists() or data.joining.exists():
        hint = "restore --to-fleet imports it into the fleet; or leave first: proxyfleet cluster leave"
        raise CommandError(f"{data.path}: this installation is a node of a fleet", hint)


@contextlib.contextmanager
def _copied(data: DataDir) -> Iterator[DataDir]:
    require_own_format(data.path)
    require_own_directory(data.path)
    with staging(data.path) as folder:
        yield snapshot(data, folder)


@contextlib.contextmanager
def _locked(found: DataDir, dry_run: bool) -> Iterator[DataDir]:
    """Lock the directory, whose data may be damaged or of another release, since they are replaced.

    Directories that were made here and stayed empty are removed.
    """
    made = [each for each in (found.path, *found.path.parents) if not each.exists()]
    data = open_own(found.path)
    held = take_lock(data.lock, "data directory", STOPPED)
    try:
        _require_alone(data)
        if any(path != data.lock for path in data.path.iterdir()):
            _settle(data, dry_run)
        yield data
    finally:
        if [path.name for path in data.path.iterdir()] == [data.lock.name]:
            data.lock.unlink()
            for folder in made:
                with contextlib.suppress(OSError):  # another process has put a file there
                    folder.rmdir()
        os.close(held)


def _settle(data: DataDir, dry_run: bool) -> None:
    """Complete an earlier restore."""
    if dry_run:
        if (data.path / "restoring" / "ready").is_dir():
            raise CommandError(f"{data.path}: a restore was interrupted", "Start the product, which completes it")
        return
    finish_restore(data)
