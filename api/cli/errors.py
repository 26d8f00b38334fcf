"""How a command ends: exit statuses, and `CommandError`, an error as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Status.USAGE: "the command line is wrong: an unknown option, a missing argument, a value that can't be read; or a "
    "file can't be read",
    Status.UNREACHABLE: "the management API can't be reached, or another server responds at its address",
    Status.NOT_AUTHORISED: "not signed in, or without the permission that is needed",
    Status.NOT_FOUND: "there is no such proxy, user, key, webhook or connection",
    Status.DIFFERENT: "`apply --check`: what is configured differs from the file; `convert --compare`: "
    "requests are decided in another way",
    Status.INTERRUPTED: "Ctrl-C",
}

OF_RUN = {
    "125": "`run`: the command can't be isolated; nothing has run",
    "126": "`run`: the command can't be executed",
    "127": "`run`: there is no such command",
    "128 + n": "`run`: signal n has ended the command; any other status is the command's own",
}

EXIT_STATUSES = (
    "0 done, 1 refused or failed, 2 a wrong command line, 3 the API can't be reached, 4 not signed in or not "
    "permitted, 5 no such thing, 6 apply --check or convert --compare found differences, 130 Ctrl-C"
)
"""A short form for the help."""


class CommandError(Exception):
    """A command failed: the message, a hint what to do next, and the exit status.

    `problems` are (field, error) pairs from a response of the API, `error` is its error object, if the API sent one.
    `options` has the command's option for each field whose name differs.
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
        self.options: Mapping[str, str] = {}

    def label(self, field: str) -> str:
        """A field with the option that sets it, or the group it is in: `url (--target)`."""
        names = (name for name in self.options if field == name or field.startswith((f"{name}.", f"{name}[")))
        option = next((self.options[name] for name in names), None)
        return f"{field} ({option})" if option else field

    def as_data(self) -> dict[str, Any]:
        """For programs: the API's error object, or one of the same members."""
        made = {"code": self.status.name, "message": self.message, "details": {}}
        return {**(self.error or made), "hint": self.hint, "exit_status": int(self.status)}


def combined(failures: Sequence[tuple[str, CommandError]]) -> CommandError:
    """One error of several, each with the name of its resource; hint and exit status are those of the first."""
    message = "\n".join(f"{name}: {each.message}" for name, each in failures)
    alone = len(failures) == 1
    problems = tuple(
        (field if alone or not field else f"{name}: {field}", error)
        for name, each in failures
        for field, error in each.problems
    )
    first = failures[0][1]
    return CommandError(message, first.hint, first.status, problems, first.error)
