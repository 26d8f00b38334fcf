"""Changes to the data directory of a stopped product and to the running one.

The user that runs the product runs them on its machine. `api/operator` changes the data.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from api.audit.trail import Broken, Head, verify
from api.cli.commands import Given, Session
from api.cli.errors import CommandError, Status
from api.cli.local.shared import data_of, locked_data, require_own_directory, settings_of, translated
from api.cli.terminal import Output
from api.cli.terminal import password as ask_password
from api.objects.users.password_reset import UnknownUser
from api.operator import offline
from api.operator.running import ask_reset, run_dir_of
from api.operator.running import upgrade as upgrade_running
from api.security.users import WeakPassword
from config.files.durable import require_own_format
from config.files.paths import RunDir, holder
from config.settings.env import ENV_PREFIX
from config.text.formatting import counted, timestamp_text


@translated()
def reset_settings(out: Output, config: Path | None, data_dir: Path | None) -> None:
    """Remove all settings that the API has changed."""
    with locked_data(config, data_dir) as data:
        removed = offline.reset_settings(data)
    text = f"Forgotten: {', '.join(removed)}." if removed else "Nothing was set through the API."
    out.done({"forgotten": removed}, text)


@translated()
def rotate_signing_key(session: Session, config: Path | None, data_dir: Path | None, revoke_previous: bool) -> None:
    """Sign access tokens with a new key: of the stopped product that has its data here, else over the API."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    if data.path.is_dir() and holder(data.lock) is None:
        with locked_data(config, data_dir) as data:
            key_id, end = offline.rotate_signing_key(data, revoke_previous)
        done = {"key_id": key_id, "previous_accepted_until": timestamp_text(end)}
    else:
        done = session.api.post("/auth/signing-key/rotate", {"revoke_previous": revoke_previous})
    previous = "have ended" if revoke_previous else f"are valid until {done['previous_accepted_until']}"
    session.out.done(done, f"Tokens are signed with the key {done['key_id']}; those of the older key {previous}.")


@translated()
def verify_audit(out: Output, config: Path | None, data_dir: Path | None, head: str | None) -> None:
    """Verify the hash chain of the audit trail."""
    expected = _parsed_head(head)
    data = data_of(config, data_dir)
    require_own_format(data.path)
    if not data.fleet.is_file():
        raise CommandError(f"{data.path}: there is no audit trail here", "Name its directory with --data-dir")
    found = verify(data, expected)
    if isinstance(found, Broken):
        raise CommandError(f"row {found.seq} {found.error}")
    text = f"The audit trail is intact: {counted(found.seq, 'row')}.\nhead {found.seq}:{found.hash}"
    out.data({"seq": found.seq, "hash": found.hash}, lambda: out.line(text))


def _parsed_head(text: str | None) -> Head | None:
    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text, re.ASCII)
    if match is None:
        raise CommandError("--head: must be a number, a colon and 64 hex digits", status=Status.USAGE)
    return Head(int(match[1]), match[2])


@translated()
def upgrade(out: Output, config: Path | None, data_dir: Path | None, run_dir: Path | None, timeout: float) -> None:
    """Replace the running product by the installed release."""
    settings = settings_of(config, data_dir=data_dir, run_dir=run_dir)
    before, after = upgrade_running(settings, timeout)
    text = (
        f"Upgraded from {before} to {after}; older connections drain for up to {settings.server.upgrade_drain:g} s, "
        "proxyfleet status counts them."
    )
    out.done({"before": before, "after": after}, text)


@translated(WeakPassword)
def reset_password(out: Output, user: str, config: Path | None, data_dir: Path | None, fields: Given) -> None:
    """Set a new password of a user, in the data of a stopped product, or by a request to the running one."""
    chosen = os.environ.get(f"{ENV_PREFIX}NEW_PASSWORD")
    if fields["ask"] or fields["password_stdin"]:
        chosen = ask_password(f"New password of {user}", fields["password_stdin"], twice=True)
    running = running_at(config, data_dir, fields["run_dir"])
    try:
        if running is None:
            with locked_data(config, data_dir) as data:
                fresh = offline.reset_password(data, user, chosen)
                disabled = offline.is_disabled(data, user)
        else:
            done = ask_reset(running, user, chosen)
            fresh, disabled = done.password, done.disabled
    except UnknownUser as error:
        raise CommandError(str(error), status=Status.NOT_FOUND) from error
    if disabled:
        out.note(f"note: {user} is disabled, and can't sign in until an administrator activates the account")
    text = f"The password of {user} is now: {fresh}" if chosen is None else f"The password of {user} is changed."
    out.done({"username": user, "password": fresh if chosen is None else None}, text)


def running_at(config: Path | None, data_dir: Path | None, run_dir: Path | None) -> RunDir | None:
    """The run directory of the product that holds the data directory; None if it is stopped. Raises `CommandError`."""
    data = data_of(config, data_dir)
    require_own_directory(data.path)
    pid = holder(data.lock)
    if pid is None:
        return None
    found = run_dir_of(settings_of(config, data_dir=data_dir, run_dir=run_dir), pid)
    if found is None:
        raise CommandError(
            f"{data.path} is in use by process {pid}, and its run directory is not the default one",
            "If that is the product, name its run directory with --run-dir; if it is a command, wait until it ends",
        )
    return found
