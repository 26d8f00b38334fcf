"""Two workers of one proxy, each with a port of its own, so that a test says which of them a client meets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from actors.supervision.processes.columns import WorkerColumns
from actors.workers.columns import open_columns
from tests.kit.forked_actor import Forked
from tests.kit.forwarding_rig import PROXY_ID, Rig


class WorkerRig(Rig):
    """One worker, with a column in `folder`."""

    def __init__(self, folder: Path, columns: WorkerColumns, instance: int, **changes: Any) -> None:
        self._shared = folder
        self._columns = columns
        self._number = instance
        super().__init__(**changes)

    def _spawn(self) -> Forked:
        os.symlink(self._shared, self.run_dir.workers)
        self.place = {"column": self._columns.allocate(PROXY_ID, self._number)}
        return super()._spawn()

    def open_everywhere(self) -> int:
        """Connections that are open at all workers."""
        columns = open_columns(self._shared / PROXY_ID)
        assert columns is not None
        return columns.open_connections().connections

    def kill(self) -> None:
        """As the supervisor sees it: the process has died, so its column counts no more."""
        self.process.kill()
        self.process.wait(60)
        self._columns.ended(PROXY_ID, self._number)


@contextmanager
def two_workers(folder: Path, **changes: Any) -> Iterator[tuple[WorkerRig, WorkerRig]]:
    """Both with this configuration."""
    columns = WorkerColumns(folder)
    with ExitStack() as stack:
        one, other = (stack.enter_context(WorkerRig(folder, columns, number, **changes)) for number in (1, 2))
        yield one, other
