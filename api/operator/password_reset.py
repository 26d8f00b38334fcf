"""Asks the running product from the command line for a new password of a user (`api.services.password_reset`)."""

from __future__ import annotations

from actors.bus.mailbox import BusClient, NotRunningError
from actors.bus.messages.common import API, Failed, PasswordReset, ResetPassword
from actors.bus.messages.supervision import DescribeProgram, Program
from api.services.password_reset import UnknownUser
from config.files.paths import RunDir

SUPERVISOR_TIMEOUT = 5.0
API_TIMEOUT = 20.0
"""Seconds that the API may take: it hashes the password and waits for the disk."""
AGAIN = "try again in a moment"


class NotReset(Exception):
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
