"""`proxyfleet upgrade`: asks the running product to become what is installed now, and waits until it has."""

from __future__ import annotations

import time
from typing import Any

from actors.bus.client import BusClient, NotRunningError
from actors.bus.messages.common import Failed, Unreachable
from actors.bus.messages.supervision import DescribeProgram, Program, Upgrade
from api.operator.run_dir import run_dir
from config.files.paths import PathError
from config.settings.settings import Settings

REHEARSED_WITHIN = 65.0
"""Seconds that the supervisor may take to say whether the new program would start."""
LOOK_EVERY = 0.1


class NotUpgraded(Exception):
    """The older program goes on, or nothing is known of the new one; the text says which and why."""


def upgrade(settings: Settings, timeout: float) -> tuple[str, str]:
    """The versions before and after, once the new program is ready. Raises `NotUpgraded`."""
    try:
        with BusClient(run_dir(settings)) as asking:
            before = _program(asking.ask(DescribeProgram()))
            reply = asking.ask(Upgrade(), timeout=REHEARSED_WITHIN)
            if isinstance(reply, Failed):
                raise NotUpgraded(f"not upgraded, the older program goes on: {reply.error}")
            if isinstance(reply, Unreachable):
                raise NotUpgraded(f"nobody answers ({reply.reason})")
            return before.version, _wait(asking, before, timeout).version
    except (NotRunningError, PathError) as error:
        raise NotUpgraded(str(error)) from error


def _wait(asking: BusClient, before: Program, timeout: float) -> Program:
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
