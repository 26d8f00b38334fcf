"""What a command ends with: exit statuses, and what went wrong as an exception made of data."""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class Status(IntEnum):
    """Exit statuses; a part of the interface, listed in `docs/cli.md`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_AUTHORISED = 4
    NOT_FOUND = 5
    DIFFERENT = 6
    INTERRUPTED = 130


MEANINGS = {
    Status.OK: "done",
    Status.FAILED: "refused, or failed; the message says why",
    Status.USAGE: "the command line itself is wrong: an unknown option, a missing argument, a value that can't be read",
    Status.UNREACHABLE: "the management API can't be reached, or what answers there is something else",
    Status.NOT_AUTHORISED: "not signed in, or without the permission that is needed",
    Status.NOT_FOUND: "there is no such proxy, user, key, webhook or connection",
    Status.DIFFERENT: "`apply --check`: what is configured differs from the file",
    Status.INTERRUPTED: "Ctrl-C",
}


class Trouble(Exception):
    """Something went wrong: the sentence, what to do next, and the exit status.

    `problems` has (field, error) pairs of what the API refused; `error` is the API's own error object, if it was one.
    """

    def __init__(
        self,
        message: str,
        hint: str | None = None,
        status: Status = Status.FAILED,
        problems: tuple[tuple[str | None, str], ...] = (),
        error: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status
        self.problems = problems
        self.error = error

    def as_data(self) -> dict[str, Any]:
        """For programs: the API's error object, or one made in its form."""
        made = {"code": self.status.name, "message": self.message, "details": {}}
        return {**(self.error or made), "hint": self.hint, "exit_status": int(self.status)}
