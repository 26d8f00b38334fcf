"""`proxyfleet upgrade`: asks the running product to become what is installed now, and waits until it has."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from actors.bus.asking import Asking, NotRunningError
from actors.bus.messages import DescribeProgram, Failed, Program, Unreachable, Upgrade
from config.paths import PathError, RunDir, default_data_dir, default_run_dir
from config.settings import Settings

REHEARSED_WITHIN = 65.0
"""Seconds that the supervisor may take to say whether the new program would start."""
LOOK_EVERY = 0.1
SYSTEM_RUN_DIR = Path("/run/proxyfleet")
"""Where the product runs under systemd (`systemd/proxyfleet.service`)."""


class NotUpgraded(Exception):
    """The older program goes on, or nothing is known of the new one; the text says which and why."""


def upgrade(settings: Settings, timeout: float) -> tuple[str, str]:
    """The versions before and after, once the new program is ready. Raises `NotUpgraded`."""
    try:
        with Asking(_run_dir(settings)) as asking:
            before = _program(asking.ask(DescribeProgram()))
            reply = asking.ask(Upgrade(), timeout=REHEARSED_WITHIN)
            if isinstance(reply, Failed):
                raise NotUpgraded(f"not upgraded, the older program goes on: {reply.error}")
            if isinstance(reply, Unreachable):
                raise NotUpgraded(f"nobody answers ({reply.reason})")
            return before.version, _wait(asking, before, timeout).version
    except (NotRunningError, PathError) as error:
        raise NotUpgraded(str(error)) from error


def _wait(asking: Asking, before: Program, timeout: float) -> Program:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        now = asking.ask(DescribeProgram(), timeout=1.0)
        if isinstance(now, Program) and now.started_at != before.started_at and now.ready:
            return now
        time.sleep(LOOK_EVERY)
    raise NotUpgraded(f"the new program is not ready after {timeout:g} s; its log tells more")


def _program(reply: Any) -> Program:
    if not isinstance(reply, Program):
        raise NotUpgraded(f"nobody answers ({reply})")
    return reply


def _run_dir(settings: Settings) -> RunDir:
    if settings.run_dir is not None:
        return RunDir(settings.run_dir.absolute())
    if settings.data_dir is None and os.path.exists(SYSTEM_RUN_DIR / "lock"):  # False also where we may not look
        return RunDir(SYSTEM_RUN_DIR)
    return RunDir(default_run_dir(settings.data_dir or default_data_dir()))
