"""`proxyfleet backup`: one archive with all data of the product. `restore.py` reads it."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from api.cli.commands import RECOVER, local_command
from api.cli.errors import CommandError, Status
from api.cli.local.offline import ConfigOption, DataOption, data_of, refuse_newer, require_own_directory, translated
from api.cli.quantities import decimal
from api.cli.terminal.output import Output
from api.cli.terminal.progress import progress
from api.cli.terminal.secret_input import passphrase as ask_passphrase

if TYPE_CHECKING:
    from api.backup.manifest import Manifest
    from config.files.paths import DataDir

PassphraseOption = Annotated[
    Path | None,
    typer.Option("--passphrase-file", metavar="FILE", help="Its first line is the passphrase; else it is asked for."),
]
CREDENTIAL = "backup-passphrase"
"""Name of the credential of systemd (`LoadCredential=`)."""
SUFFIXES = (".tar.gz", ".tgz")
"""Suffixes of archives."""
_NAME = re.compile(r"proxyfleet-[0-9]{8}T[0-9]{6}Z\.tar\.gz")


def add_commands(app: typer.Typer) -> None:
    """Add the command to `app`."""
    local_command(app, "backup", rich_help_panel=RECOVER)(backup)


def backup(
    out: Output,
    target: Annotated[
        Path,
        typer.Argument(
            metavar="TARGET", help="A directory, for a name with the time in it; or a file (.tar.gz, .tgz)."
        ),
    ] = Path(),
    config: ConfigOption = None,
    data_dir: DataOption = None,
    passphrase_file: PassphraseOption = None,
    without_keys: Annotated[
        bool, typer.Option("--without-keys", help="Leave the key files out: usable only where they still are.")
    ] = False,
    unattended: Annotated[
        bool, typer.Option("--unattended", help="Never ask: without a passphrase leave the key files out.")
    ] = False,
    with_logs: Annotated[bool, typer.Option("--with-logs", help="Include the access records.")] = False,
    keep: Annotated[
        int | None, typer.Option("--keep", min=1, help="Keep so many archives that have the time in their name.")
    ] = None,
) -> None:
    """Back up all data into one archive, also while the product runs; keys are sealed under a passphrase."""
    from api.backup.create import create_backup
    from api.backup.snapshot import CollectError
    from api.backup.target import BadTarget

    data = _own_data(config, data_dir)
    _check_place(target, keep)
    unavailable = unattended and passphrase_file is None and _credential_file() is None
    passphrase = None if without_keys or unavailable else passphrase_of(passphrase_file, twice=True)
    file = _file_at(target)
    try:
        with progress(out, "Backing up") as report:
            manifest, digest = create_backup(data, file, passphrase, with_logs, report)
    except (CollectError, BadTarget, OSError) as error:
        reason = f"{file.parent}: {error.strerror or error}" if isinstance(error, OSError) else error
        raise CommandError(f"The backup failed, and there is no new archive: {reason}") from error
    removed = _remove_older(file, keep) if keep else []
    result = {"file": str(file), "sha256": digest, "keys": manifest.keys, "removed": removed}
    out.data(result, lambda: _print(out, file, manifest, digest, removed))


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


def _print(out: Output, file: Path, manifest: Manifest, digest: str, removed: list[str]) -> None:
    out.message(f"{file}: {len(manifest.files)} files, {decimal(file.stat().st_size)}, SHA-256 {digest}")
    for name in removed:
        out.message(f"removed: {name}")
    if not manifest.keys:
        out.note("note: the key files are not in it; without them its secrets can't be opened")


def _own_data(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory, if this user owns it: SQLite would leave files of another user there."""
    data = data_of(config, data_dir)
    refuse_newer(data.path)
    if not data.store.is_dir():
        raise CommandError(f"{data.path}: there is no configuration here", "Name its directory with --data-dir")
    if (data.path / "restoring" / "ready").is_dir():
        hint = "Start the product, which completes it; then back it up"
        raise CommandError(f"{data.path}: a restore was interrupted", hint)
    require_own_directory(data.store)
    return data


def _credential_file() -> Path | None:
    from config.files.credentials import CredentialError, credential

    return translated(CredentialError, lambda: credential(CREDENTIAL))


def passphrase_of(file: Path | None, twice: bool) -> str | None:
    """The passphrase from the file, from systemd's credential, or from a prompt. Raises `CommandError`."""
    from api.backup.sealed_keys import check_passphrase

    text = ask_passphrase("Passphrase of the keys", file or _credential_file(), twice)
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
