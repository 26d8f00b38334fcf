"""Two workers of one proxy, each with a port of its own, so that a test says which of them a client meets."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from actors.forwarding.limits.workers import OPEN
from actors.state.live_state import LiveState
from actors.state.processes import UNOWNED
from actors.supervision.processes.live_state_files import LiveStateFiles
from tests.kit.forked_actor import Forked
from tests.kit.forwarding_rig import PROXY_ID, Rig


class WorkerRig(Rig):
    """One of two workers, whose live state is in `folder`."""

    def __init__(self, folder: Path, files: LiveStateFiles, instance: int, **changes: Any) -> None:
        self._shared = folder
        self.instance = instance
        super().__init__(live_state=files, workers=2, **changes)

    def _spawn(self) -> Forked:
        os.symlink(self._shared, self.run_dir.state)
        return super()._spawn()

    def open_everywhere(self) -> int:
        """Connections that are open at all workers."""
        onlooker = self.live_state.begin(PROXY_ID, 9)
        assert onlooker != UNOWNED
        state = LiveState(time.monotonic, self._shared, PROXY_ID, onlooker)
        return state.key(OPEN).connections()

    def kill(self) -> None:
        """As the supervisor sees it: the process has died, so it counts no more."""
        self.process.kill()
        self.process.wait(60)
        self.live_state.end(PROXY_ID, self.instance)


@contextmanager
def two_workers(folder: Path, **changes: Any) -> Iterator[tuple[WorkerRig, WorkerRig]]:
    """Both with this configuration."""
    files = LiveStateFiles(folder)
    with ExitStack() as stack:
        one, other = (stack.enter_context(WorkerRig(folder, files, number, **changes)) for number in (1, 2))
        yield one, other
