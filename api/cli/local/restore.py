"""`proxyfleet restore`: what differs is shown, and then one decision replaces what is there, or nothing happens."""

from __future__ import annotations

import contextlib
import os
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
    open_ours,
    refuse_newer,
    refuse_others,
    take_lock,
    translated,
)
from api.cli.terminal.output import Column, Output
from api.cli.terminal.progress import progress
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from api.backup.restore import Prepared
    from config.files.paths import DataDir

COLUMNS = (Column("CHANGE", "change"), Column("KIND", "kind"), Column("NAME", "name"), Column("FIELDS", "fields"))
LOST_COLUMNS = (Column("KIND", "kind"), Column("NAME", "name"), Column("FIELD", "field"))


def add_commands(app: typer.Typer) -> None:
    """Put it into `app`."""
    local_command(app, "restore", rich_help_panel=RECOVER)(restore)


def restore(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that backup made.")],
    config: ConfigOption = None,
    data_dir: DataOption = None,
    passphrase_file: PassphraseOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check all of it, and show what differs.")
    ] = False,
    without_secrets: Annotated[
        bool,
        typer.Option(
            "--without-secrets",
            help="Restore without the keys of the archive; remove the secrets that need them, and list them.",
        ),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Also when nothing differs, for audit trail, metrics and records.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Put back what a backup has, while the product is stopped; what is there now is kept beside.

    Everything is read and checked, and what differs is shown, before anything is touched. A restore that is killed
    leaves the old state or the new one.
    """
    from api.backup.archive import opened
    from api.backup.manifest import BadArchive
    from api.backup.restore import prepared
    from api.store import StoreError

    if file.exists() and not file.is_file():
        raise CommandError(
            f"{file}: is not a regular file", "An archive is read more than once; save it as a file first"
        )
    try:
        with opened(file) as archive, _place(config, data_dir, dry_run) as data:
            wanted = archive.manifest.keys and not without_secrets
            passphrase = passphrase_of(passphrase_file, twice=False) if wanted else None
            with contextlib.ExitStack() as stack:
                with progress(out, "Reading") as told:
                    found = stack.enter_context(prepared(data, archive, passphrase, told, without_secrets))
                if _decided(out, data, file, found, dry_run, force, yes):
                    _commit(out, data, found, archive.digest())
    except BadArchive as error:
        raise CommandError(f"{file}: {error}", "Nothing was touched") from error
    except (OSError, StoreError) as error:
        raise CommandError(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _decided(out: Output, data: DataDir, file: Path, found: Prepared, dry_run: bool, force: bool, yes: bool) -> bool:
    """Show what would come of it, and ask. Raises `CommandError` when somebody who was asked doesn't want it."""
    told = _told(found)
    if out.form != "json":
        made, files = told["created_at"], len(found.manifest.files)
        out.message(f"{file}: made {made} by release {found.manifest.product}, {files} files, all good.")
        out.table(COLUMNS, told["changes"], "Configuration and keys are those that are there.")
        if found.lost:
            out.message("These secrets are not restored; enter them again afterwards:")
            out.table(LOST_COLUMNS, told["lost_secrets"], "")
    if dry_run or not (told["changes"] or force):
        why = "Nothing was touched." if dry_run else "Nothing to restore; --force replaces what is there all the same."
        out.data({**told, "dry_run": dry_run}, lambda: out.message(why))
        return False
    confirm(f"Put this in the place of what is in {data.path}?", yes)
    return True


def _told(found: Prepared) -> dict[str, Any]:
    """For programs; of a restore that did nothing, yet."""
    rows = [
        {"change": one.change, "kind": one.kind, "name": one.name, "fields": one.fields} for one in found.differences
    ]
    made = timestamp_text(found.manifest.created_at)
    lost = [{"kind": one.kind, "name": one.name, "field": one.field} for one in found.lost]
    described = {"created_at": made, "product": found.manifest.product, "changes": rows, "lost_secrets": lost}
    return {**described, "dry_run": False, "restored": False, "kept": None}


def _commit(out: Output, data: DataDir, found: Prepared, digest: str) -> None:
    from api.backup.restore import commit

    kept = commit(data, found, digest).kept
    done = f"What was there is kept in {kept}." if kept else "There was nothing before."
    shown = {**_told(found), "restored": True, "kept": kept and str(kept)}
    out.data(shown, lambda: out.message(f"Restored; everybody has to sign in again. {done}"))


# --- where to ---


@contextlib.contextmanager
def _place(config: Path | None, data_dir: Path | None, dry_run: bool) -> Iterator[DataDir]:
    """The data directory to restore into, locked until the end of the block. Raises `CommandError` while the product
    runs.

    A dry run only reads: while the product runs, it gets a private copy of the data instead.
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
    refuse_others(data.path)
    with staging(data.path) as folder:
        yield translated(CollectError, lambda: snapshot(data, folder))


@contextlib.contextmanager
def _locked(found: DataDir, dry_run: bool) -> Iterator[DataDir]:
    """Other than elsewhere the data in it may be damaged, or of a newer release: they are replaced.

    A directory that was made for this and stayed empty goes again.
    """
    made = [each for each in (found.path, *found.path.parents) if not each.exists()]
    data = open_ours(found.path)
    held = take_lock(data.lock, "data directory", STOPPED)
    try:
        if any(path != data.lock for path in data.path.iterdir()):
            _settle(data, dry_run)
        yield data
    finally:
        if [path.name for path in data.path.iterdir()] == [data.lock.name]:
            data.lock.unlink()
            for folder in made:
                with contextlib.suppress(OSError):  # somebody put something there
                    folder.rmdir()
        os.close(held)


def _settle(data: DataDir, dry_run: bool) -> None:
    """Complete an earlier restore, and let what a restore leaves alone, as records, be of this program's format."""
    if dry_run:
        if (data.path / "restoring" / "ready").is_dir():
            raise CommandError(f"{data.path}: a restore was interrupted", "Start the product, which completes it")
        return
    finish_restore(data)
    if not _is_newer(data):
        try:
            bring_up_to_date(data)
        except CommandError as trouble:  # a restore may be the way out of just that
            typer.echo(f"note: {trouble.message}", err=True)


def _is_newer(data: DataDir) -> bool:
    try:
        refuse_newer(data.path)
    except CommandError:
        return True
    return False
