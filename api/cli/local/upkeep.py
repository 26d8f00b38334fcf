"""Options and help of `backup`, `restore`, `upgrade`, `reset-settings`, `rotate-signing-key` and `reset-password`.

What they do is loaded when they are called: it needs the modules of the product, which take time to import.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from api.cli.commands import RECOVER, RUN, YES, local_command
from api.cli.options import argument, flag, number, option, seconds_option
from api.cli.terminal.output import Output
from api.cli.terminal.terminal_input import PASSPHRASE_FILE, PASSWORD_STDIN
from config.settings.env import ENV_PREFIX

DATA_OPTIONS = {
    "config": option(Path | None, "--config", "A TOML file.", envvar=f"{ENV_PREFIX}CONFIG"),
    "data_dir": option(Path | None, "--data-dir", "The directory of all lasting data."),
}
_BACKUP = {
    "target": argument(
        "TARGET", "A directory, for a name with the time in it; or a file (.tar.gz, .tgz).", Path, default=Path()
    ),
    **DATA_OPTIONS,
    "passphrase_file": PASSPHRASE_FILE,
    "without_keys": flag("--without-keys", "Leave the key files out: usable only where they still are."),
    "unattended": flag("--unattended", "Never ask: without a passphrase leave the key files out."),
    "with_logs": flag("--with-logs", "Include the access records."),
    "keep": number("--keep", "Keep so many archives that have the time in their name.", min=1),
}
_WITHOUT = "Restore without the keys of the archive; remove the secrets that need them, and list them."
_RESTORE = {
    "file": argument("FILE", "An archive of backup.", Path),
    **DATA_OPTIONS,
    "passphrase_file": PASSPHRASE_FILE,
    "dry_run": flag("--dry-run", "Read and check the archive, and list the differences."),
    "without_secrets": flag("--without-secrets", _WITHOUT),
    "force": flag("--force", "Restore although nothing differs, for audit trail, metrics and records."),
    "yes": YES,
}
_UPGRADE = {
    **DATA_OPTIONS,
    "run_dir": option(Path | None, "--run-dir", "The product's directory of sockets and locks."),
    "timeout": seconds_option("--timeout", "Seconds to wait for the new program.", 120.0, min=1),
}
_RESET_PASSWORD = {
    "user": argument("USER", "The user name."),
    **DATA_OPTIONS,
    "run_dir": option(Path | None, "--run-dir", "The running product's directory of sockets and locks."),
    "ask": flag("--ask", "Ask for the new password instead of a random one."),
    "password_stdin": PASSWORD_STDIN,
}


def add_commands(app: typer.Typer) -> None:
    """Add the commands to `app`."""
    local_command(app, "backup", _BACKUP, rich_help_panel=RECOVER)(backup)
    local_command(app, "restore", _RESTORE, rich_help_panel=RECOVER)(restore)
    local_command(app, "upgrade", _UPGRADE, rich_help_panel=RUN)(upgrade)
    local_command(app, "reset-settings", DATA_OPTIONS, rich_help_panel=RECOVER)(reset_settings)
    local_command(app, "rotate-signing-key", DATA_OPTIONS, rich_help_panel=RECOVER)(rotate_signing_key)
    local_command(app, "reset-password", _RESET_PASSWORD, rich_help_panel=RECOVER)(reset_password)


def backup(out: Output, **given: Any) -> None:
    """Back up all data into one archive, also while the product runs; keys are sealed under a passphrase."""
    from api.cli.local import backup as work

    work.backup(out, **given)


def restore(out: Output, **given: Any) -> None:
    """Replace the data by those of a backup, while the product is stopped; the present data are kept beside.

    The archive is read and checked, and the differences are listed, before anything is changed. A restore that is
    killed leaves the old state or the new one.
    """
    from api.cli.local import backup as work

    work.restore(out, **given)


def upgrade(out: Output, **given: Any) -> None:
    """Replace the running product by the installed release, without refusing a connection; open ones drain."""
    from api.cli.local import offline as work

    work.upgrade(out, **given)


def reset_settings(out: Output, **given: Any) -> None:
    """Remove all settings that the API has changed, while the product is stopped; the configuration applies again."""
    from api.cli.local import offline as work

    work.reset_settings(out, **given)


def rotate_signing_key(out: Output, **given: Any) -> None:
    """Sign access tokens with a new key, while the product is stopped; every sign-in stays valid."""
    from api.cli.local import offline as work

    work.rotate_signing_key(out, **given)


def reset_password(out: Output, **given: Any) -> None:
    """Set a new password of a user, also while the product runs: a random one, or PROXYFLEET_NEW_PASSWORD."""
    from api.cli.local import offline as work

    work.reset_password(out, **given)
