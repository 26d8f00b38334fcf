"""Commands to the running product: its run directory; `proxyfleet upgrade`, by which it replaces itself by the
installed release; a new password of a user (`api.objects.users.password_reset`).
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, TypeVar

from actors.bus.mailbox import BusClient, NotRunningError
from actors.bus.messages.cluster import ClusterRequest
from actors.bus.messages.common import API, Failed, PasswordReset, ResetPassword, Unreachable
from actors.bus.messages.supervision import DescribeProgram, Program, Upgrade
from api.objects.users.password_reset import UnknownUser
from config import OperatorError
from config.files.paths import PathError, RunDir, default_data_dir, default_run_dir, holder
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


PREFLIGHT_TIMEOUT = 245.0
"""Seconds that the supervisor may take to find out whether the new program would start."""
POLL_INTERVAL = 0.1


class NotUpgraded(OperatorError):
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


SUPERVISOR_TIMEOUT = 5.0
API_TIMEOUT = 20.0
"""Seconds that the API may take: it hashes the password and waits for the disk."""
AGAIN = "try again in a moment"


CLUSTER_TIMEOUT = 900.0
"""Seconds that the API may take to copy what a large installation has into the database of a fleet."""
T = TypeVar("T")


class NotDone(OperatorError):
    """What was asked of the running product was not done, or that is unknown; the text says which and why."""


def ask_cluster(run: RunDir, message: ClusterRequest, reply: type[T]) -> T:
    """Have the product that runs in `run` make, join, leave or move a fleet, or replace its key. Raises `NotDone`."""
    try:
        with BusClient(run) as bus:
            found = bus.ask(message, API, CLUSTER_TIMEOUT)
    except NotRunningError as error:
        raise NotDone(f"not done: the product is starting or ending; {AGAIN}") from error
    if isinstance(found, reply):
        return found
    if isinstance(found, Failed):
        raise NotDone(found.error)
    why = found.reason if isinstance(found, Unreachable) else found
    raise NotDone(f"the API does not say that it is done: {why}; `proxyfleet cluster status` says what is")


class NotReset(OperatorError):
    """The password is not changed, or that is unknown; the text says which and why."""


def ask_reset(run: RunDir, username: str, password: str | None) -> PasswordReset:
    """Have the product that runs in `run` change the password of a user. Raises `UnknownUser`, `NotReset`."""
    try:
        with BusClient(run) as bus:
            if not isinstance(bus.ask(DescribeProgram(), timeout=SUPERVISOR_TIMEOUT), Program):
                raise NotReset(
                    f"not changed: the product is starting, or hangs, since its supervisor is silent; {AGAIN}"
                )
            reply = bus.ask(ResetPassword(username, password), API, API_TIMEOUT)
    except NotRunningError as error:
        raise NotReset(f"not changed: the product is starting or ending; {AGAIN}") from error
    if isinstance(reply, Failed):
        raise UnknownUser(reply.error) if reply.field == "username" else NotReset(reply.error)
    if not isinstance(reply, PasswordReset):
        raise NotReset(f"the API does not confirm the change: {reply.reason}; {AGAIN}")
    return reply
