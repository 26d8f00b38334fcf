"""`proxyfleet restore`: lists the differences, asks once, and replaces all data or none."""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.commands import RECOVER, YesOption, confirm, local_command
from api.cli.errors import CommandError
from api.cli.local.backup import PassphraseOption, passphrase_of
from api.cli.local.offline import (
    STOPPED,
    ConfigOption,
    DataOption,
    bring_up_to_date,
    data_of,
    finish_restore,
    open_own,
    refuse_newer,
    require_own_directory,
    take_lock,
    translated,
)
from api.cli.terminal.output import Column, Output
from api.cli.terminal.progress import progress
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from api.backup.restore import PreparedRestore
    from config.files.paths import DataDir

COLUMNS = (Column("CHANGE", "change"), Column("KIND", "kind"), Column("NAME", "name"), Column("FIELDS", "fields"))
LISTED = 10
"""Differences that are listed before the question."""
LOST_COLUMNS = (Column("KIND", "kind"), Column("NAME", "name"), Column("FIELD", "field"))


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "restore", rich_help_panel=RECOVER)(restore)


def restore(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive of backup.")],
    config: ConfigOption = None,
    data_dir: DataOption = None,
    passphrase_file: PassphraseOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check the archive, and list the differences.")
    ] = False,
    without_secrets: Annotated[
        bool,
        typer.Option(
            "--without-secrets",
            help="Restore without the keys of the archive; remove the secrets that need them, and list them.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Restore although nothing differs, for audit trail, metrics and records.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Replace the data by those of a backup, while the product is stopped; the present data are kept beside.

    The archive is read and checked, and the differences are listed, before anything is changed. A restore that is
    killed leaves the old state or the new one.
    """
    from api.backup.archive import open_archive
    from api.backup.manifest import BadArchive
    from api.backup.restore import prepare_restore
    from api.store import StoreError

    if file.exists() and not file.is_file():
        raise CommandError(
            f"{file}: is not a regular file", "An archive is read more than once; save it as a file first"
        )
    try:
        with open_archive(file) as archive, _target(config, data_dir, dry_run) as data:
            wanted = archive.manifest.keys and not without_secrets
            passphrase = passphrase_of(passphrase_file, twice=False) if wanted else None
            with contextlib.ExitStack() as stack:
                with progress(out, "Reading") as report:
                    found = stack.enter_context(prepare_restore(data, archive, passphrase, report, without_secrets))
                if _confirmed(out, data, file, found, dry_run, force, yes):
                    _commit(out, data, found, archive.digest())
    except BadArchive as error:
        raise CommandError(f"{file}: {error}", "Nothing was changed") from error
    except (OSError, StoreError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _confirmed(
    out: Output, data: DataDir, file: Path, found: PreparedRestore, dry_run: bool, force: bool, yes: bool
) -> bool:
    """List the differences and ask. Returns False if there is nothing to do; raises `CommandError` after a no."""
    result = _as_data(found)
    if out.format != "json":
        made, files = result["created_at"], len(found.manifest.files)
        out.message(f"{file}: made {made} by release {found.manifest.product}, {files} files, all intact.")
        list_changes(out, result["changes"], dry_run)
        if found.lost:
            out.message("These secrets are not restored; enter them again afterwards:")
            out.table(LOST_COLUMNS, result["lost_secrets"], "")
    if dry_run or not (result["changes"] or force):
        why = "Nothing was changed." if dry_run else "Nothing to restore; --force replaces the data nevertheless."
        out.done({**result, "dry_run": dry_run}, why)
        return False
    confirm(f"Replace the data in {data.path}?", yes)
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
    from api.backup.restore import commit

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
    from actors.supervision.locks import holder

    data = data_of(config, data_dir)
    if dry_run and holder(data.lock) is not None:
        with _copied(data) as copy:
            yield copy
    else:
        with _locked(data, dry_run) as locked:
            yield locked


@contextlib.contextmanager
def _copied(data: DataDir) -> Iterator[DataDir]:
    from api.backup.snapshot import CollectError, snapshot
    from api.backup.target import staging

    refuse_newer(data.path)
    require_own_directory(data.path)
    with staging(data.path) as folder:
        yield translated(CollectError, lambda: snapshot(data, folder))


@contextlib.contextmanager
def _locked(found: DataDir, dry_run: bool) -> Iterator[DataDir]:
    """Lock the directory, whose data may be damaged or of a newer release, since they are replaced.

    Directories that were made here and stayed empty are removed.
    """
    made = [each for each in (found.path, *found.path.parents) if not each.exists()]
    data = open_own(found.path)
    held = take_lock(data.lock, "data directory", STOPPED)
    try:
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
    """Complete an earlier restore, and migrate data that a restore leaves alone, such as records."""
    if dry_run:
        if (data.path / "restoring" / "ready").is_dir():
            raise CommandError(f"{data.path}: a restore was interrupted", "Start the product, which completes it")
        return
    finish_restore(data)
    if not _is_newer(data):
        try:
            bring_up_to_date(data)
        except CommandError as error:  # a restore may be the remedy
            typer.echo(f"note: {error.message}", err=True)


def _is_newer(data: DataDir) -> bool:
    try:
        refuse_newer(data.path)
    except CommandError:
        return True
    return False
