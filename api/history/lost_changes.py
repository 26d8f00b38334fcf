"""What was undone when the database of a fleet was restored or failed over: a file of each time, on each node.

`api.cluster.following.rereading` writes it. It is JSON: `at`, when that was noticed; `fleet`, and the name of this
`node`; `revision`, the last commit that the database had then; the numbers of the `commits` after it; the `revisions`
that they made, with who, when and where; and the `documents` as they were, with `body` null for one that had been
deleted. Secrets are sealed, as in the history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import OperatorError
from config.files.durable import replace_file
from config.files.paths import DataDir

_BEGIN, _END = "lost-", ".json"


class NothingLost(OperatorError):
    """There is no such file, or it can't be read."""


class NeverLost(NothingLost):
    """There is no file at all."""


@dataclass(frozen=True, slots=True)
class LostChanges:
    """One file; see the module."""

    at: str
    fleet: str
    node: str
    revision: int
    commits: Sequence[int]
    documents: Sequence[Mapping[str, Any]]
    revisions: Sequence[Mapping[str, Any]] = ()

    @property
    def id(self) -> str:
        """The moment, as the name of the file has it."""
        return self.at.replace(":", "")

    def save(self, data: DataDir) -> Path:
        """Write it. Raises `OSError`."""
        file = data.cluster / f"{_BEGIN}{self.id}{_END}"
        content = {name: getattr(self, name) for name in self.__slots__}
        replace_file(file, json.dumps(content, indent=1).encode())
        return file


def lost_changes(data: DataDir, which: str = "") -> LostChanges:
    """Those of a file or of a moment, or of the first digits of one; by default the last ones. Raises `NothingLost`."""
    known = sorted(data.cluster.glob(f"{_BEGIN}*{_END}"))
    if not known and not which:
        raise NeverLost(f"nothing was lost: there is no file of lost changes in {data.cluster}")
    wanted = Path(which).name.removeprefix(_BEGIN).removesuffix(_END).replace(":", "")
    found = [each for each in known if each.name.startswith(_BEGIN + wanted)]
    if not found:
        there = ", ".join(each.name for each in known) or "none at all"
        raise NothingLost(f"no file of lost changes{f' of {which!r}' if which else ''} in {data.cluster}: {there}")
    file = found[-1]
    try:
        return LostChanges(**json.loads(file.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise NothingLost(f"{file}: can't be read: {error}") from error
