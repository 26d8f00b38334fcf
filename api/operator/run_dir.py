"""The run directory of the running product, for commands that use the bus."""

from __future__ import annotations

import os
from pathlib import Path

from actors.supervision.locks import holder
from config.files.paths import RunDir, default_data_dir, default_run_dir
from config.settings.settings import Settings

SYSTEM_RUN_DIR = Path("/run/proxyfleet")
"""Where the product runs under systemd (`systemd/proxyfleet.service`)."""


def run_dir(settings: Settings) -> RunDir:
    """The run directory that these settings mean. Raises `PathError`."""
    if settings.run_dir is not None:
        return RunDir(settings.run_dir.absolute())
    if settings.data_dir is None and os.path.exists(SYSTEM_RUN_DIR / "lock"):  # False also without the permission
        return RunDir(SYSTEM_RUN_DIR)
    return RunDir(default_run_dir(settings.data_dir or default_data_dir()))


def run_dir_of(settings: Settings, pid: int) -> RunDir | None:
    """The run directory that the process `pid` has locked, where these settings or systemd's unit have it.

    A process that has locked a data directory and a run directory is the product; None when it has locked none of
    these. Raises `PathError`.
    """
    likely = [run_dir(settings)]
    if settings.run_dir is None:
        likely.append(RunDir(SYSTEM_RUN_DIR))
    return next((each for each in likely if holder(each.lock) == pid), None)
