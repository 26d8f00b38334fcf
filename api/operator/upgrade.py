"""`proxyfleet upgrade`: asks the running product to replace itself by the installed release, and waits for that."""

from __future__ import annotations

import time
from typing import Any

from actors.bus.mailbox import BusClient, NotRunningError
from actors.bus.messages.common import Failed, Unreachable
from actors.bus.messages.supervision import DescribeProgram, Program, Upgrade
from api.operator.run_dir import run_dir
from config.files.paths import PathError
from config.settings.settings import Settings

PREFLIGHT_TIMEOUT = 245.0
"""Seconds that the supervisor may take to find out whether the new program would start."""
POLL_INTERVAL = 0.1


class NotUpgraded(Exception):
    """The running program keeps serving, or the state of the new one is unknown; the text says which and why."""


def upgrade(settings: Settings, timeout: float) -> tuple[str, str]:
    """The versions before and after, once the new program is ready. Raises `NotUpgraded`."""
    try:
        with BusClient(run_dir(settings)) as bus:
            before = _program(bus.ask(DescribeProgram()))
            reply = bus.ask(Upgrade(), timeout=PREFLIGHT_TIMEOUT)
            if isinstance(reply, Failed):
                raise NotUpgraded(f"not upgraded, the older program goes on: {reply.error}")
            if isinstance(reply, Unreachable):
                raise NotUpgraded(f"the supervisor does not reply: {reply.reason}")
            return before.version, _wait(bus, before, timeout).version
    except (NotRunningError, PathError) as error:
        raise NotUpgraded(str(error)) from error


def _wait(bus: BusClient, before: Program, timeout: float) -> Program:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        now = bus.ask(DescribeProgram(), timeout=1.0)
        if isinstance(now, Program) and now.started_at != before.started_at and now.ready:
            return now
        time.sleep(POLL_INTERVAL)  # a command at a terminal waits; the deadline is checked above
    raise NotUpgraded(f"the new program is not ready after {timeout:g} s; see its log")


def _program(reply: Any) -> Program:
    if not isinstance(reply, Program):
        raise NotUpgraded(f"the supervisor does not reply: {reply}")
    return reply
