"""`proxyfleet backup` and `restore`: one archive with everything that must outlive the product."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.commands import RECOVER, YesOption, confirm, local_command
from api.cli.offline import ConfigOption, DataOption, data_of, locked_data, translated
from api.cli.output import Column, Output
from api.cli.progress import progress
from api.cli.secrets import passphrase as ask_passphrase
from api.cli.trouble import Status, Trouble
from config.units import size_text, timestamp_text

if TYPE_CHECKING:
    from api.backup.manifest import Manifest
    from api.backup.restoring import Prepared
    from config.paths import DataDir

PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Its first line is the passphrase; else it is asked for."),
]
CREDENTIAL = "backup-passphrase"
"""Of systemd's (`LoadCredential=`)."""
_NAME = re.compile(r"proxyfleet-[0-9]{8}T[0-9]{6}Z\.tar\.gz")
COLUMNS = (Column("CHANGE", "change"), Column("KIND", "kind"), Column("NAME", "name"), Column("FIELDS", "fields"))


def add_commands(app: typer.Typer) -> None:
    """Put them into `app`."""
    local_command(app, "backup", rich_help_panel=RECOVER)(backup)
    local_command(app, "restore", rich_help_panel=RECOVER)(restore)


def backup(
    out: Output,
    target: Annotated[
        Path, typer.Argument(metavar="TARGET", help="A file; or a directory, for a name with the time in it.")
    ] = Path(),
    config: ConfigOption = None,
    data_dir: DataOption = None,
    passphrase_file: PassphraseOption = None,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Leave the key files out: good only where they still are.")
    ] = False,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Never ask: without a passphrase leave the key files out.")
    ] = False,
    with_logs: Annotated[bool, typer.Option("--with-logs", help="With the access records.")] = False,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Of those with the time in their name keep so many.")
    ] = None,
) -> None:
    """Back everything up into one archive, also while the product runs; keys are sealed under a passphrase."""
    from api.backup.archive import write
    from api.backup.collecting import CollectError

    data = _own_data(config, data_dir)
    nobody = unattended and passphrase_file is None and _given_by_systemd() is None
    passphrase = None if without_keys or nobody else _passphrase(passphrase_file, twice=True)
    file = target / time.strftime("proxyfleet-%Y%m%dT%H%M%SZ.tar.gz", time.gmtime()) if target.is_dir() else target
    try:
        with progress(out, "Backing up") as told:
            manifest, digest = write(data, file, passphrase, with_logs, told)
        removed = _remove_older(file.parent, keep) if keep else []
    except (CollectError, OSError) as error:
        raise Trouble(f"The backup failed, and there is no new archive: {error}") from error
    result = {"file": str(file), "sha256": digest, "keys": manifest.keys, "removed": removed}
    out.data(result, lambda: _told(out, file, manifest, digest, removed))


def _told(out: Output, file: Path, manifest: Manifest, digest: str, removed: list[str]) -> None:
    out.message(f"{file}: {len(manifest.files)} files, {size_text(file.stat().st_size)}, SHA-256 {digest}")
    for name in removed:
        out.message(f"removed: {name}")
    if not manifest.keys:
        out.note("note: the key files are not in it; without them its secrets can't be opened")


def restore(
    out: Output,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An archive that backup made.")],
    config: ConfigOption = None,
    data_dir: DataOption = None,
    passphrase_file: PassphraseOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Read and check all of it, and show what differs.")
    ] = False,
    yes: YesOption = False,
) -> None:
    """Put back what a backup has, while the product is stopped; what is there now is kept beside.

    Everything is read and checked, and what differs is shown, before anything is touched. A restore that is killed
    leaves the old state or the new one.
    """
    from api.backup.archive import opened
    from api.backup.manifest import BadArchive
    from api.backup.restoring import prepared

    try:
        with locked_data(config, data_dir, may_be_new=True) as data, opened(file) as archive:
            passphrase = _passphrase(passphrase_file, twice=False) if archive.manifest.keys else None
            with contextlib.ExitStack() as stack:
                with progress(out, "Reading") as told:
                    found = stack.enter_context(prepared(data, archive, passphrase, told))
                _carry_out(out, data, file, found, dry_run, yes)
    except BadArchive as error:
        raise Trouble(f"{file}: {error}", "Nothing was touched") from error
    except OSError as error:
        raise Trouble(f"{file}: {error.strerror or error}") from error


def _carry_out(out: Output, data: DataDir, file: Path, found: Prepared, dry_run: bool, yes: bool) -> None:
    from api.backup.restoring import commit

    rows = [
        {"change": one.change, "kind": one.kind, "name": one.name, "fields": one.fields} for one in found.differences
    ]
    made = timestamp_text(found.manifest.created_at)
    told = {"created_at": made, "product": found.manifest.product, "changes": rows, "dry_run": dry_run, "kept": None}
    if out.form != "json":
        out.message(
            f"{file}: made {made} by release {found.manifest.product}, {len(found.manifest.files)} files, all good."
        )
        out.table(COLUMNS, rows, "The configuration is the one that is there.")
    if dry_run:
        out.data(told, lambda: out.message("Nothing was touched."))
        return
    confirm(f"Put this in the place of what is in {data.path}?", yes)
    with file.open("rb") as content:
        kept = commit(data, found, hashlib.file_digest(content, "sha256").hexdigest())
    done = f"Restored. What was there is kept in {kept}; remove it when it isn't needed any more."
    out.data({**told, "kept": str(kept)}, lambda: out.message(done))


def _own_data(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory, if it is ours: SQLite would leave files of another user there."""
    data = data_of(config, data_dir)
    if not data.store.is_dir():
        raise Trouble(f"{data.path}: there is no configuration here", "Name its directory with --data-dir")
    if (data.path / "restoring" / "ready").is_dir():
        hint = "Start the product, which completes it; then back it up"
        raise Trouble(f"{data.path}: a restore was interrupted", hint)
    owner = data.store.stat().st_uid
    if owner != os.geteuid():
        raise Trouble(f"{data.path}: belongs to user {owner}, not to us", "Run it as the user that the product runs as")
    return data


def _given_by_systemd() -> Path | None:
    from config.credentials import CredentialError, credential

    return translated(CredentialError, lambda: credential(CREDENTIAL))


def _passphrase(file: Path | None, twice: bool) -> str | None:
    """From the file, from systemd, or from a person."""
    from api.backup.sealed_keys import check_passphrase

    file = file or _given_by_systemd()
    if file is None:
        text = ask_passphrase("Passphrase of the keys", twice)
    else:
        try:
            text = file.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
        except (OSError, UnicodeDecodeError) as error:
            raise Trouble(f"--passphrase-file: {file}: {error}", status=Status.USAGE) from error
    try:
        return check_passphrase(text)
    except ValueError as error:
        raise Trouble(str(error), status=Status.USAGE) from error


def _remove_older(folder: Path, keep: int) -> list[str]:
    """Remove the oldest archives with a time in their name, until `keep` are left; their names."""
    names = sorted(path.name for path in folder.iterdir() if _NAME.fullmatch(path.name))
    older = names[:-keep]
    for name in older:
        (folder / name).unlink()
    return older
