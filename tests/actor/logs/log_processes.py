"""A log indexer as a process of its own, to be killed in the middle, and a sender of records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from actors.bus import records
from actors.bus.messages.records import QueryLogs
from actors.bus.records import RecordSender
from tests.kit.bus import Bench
from tests.kit.records import SearchedIndex, row
from tests.kit.settings import boot_settings

_PROGRAM = """
import json, sys
from actors.process import Boot, main
sys.exit(main("actors.logs.actor:LogsActor", Boot(**json.loads(sys.argv[1])), [], int(sys.argv[2])))
"""


class Indexer:
    """The process. Its lifeline is a pipe that this object holds."""

    def __init__(self, bench: Bench, data: Path, **logging: Any) -> None:
        self._bench, self._data, self._logging = bench, data, logging
        self._writing = -1
        self.process: subprocess.Popen[bytes] | None = None
        self.log = bench.run_dir.path / "log"

    def start(self) -> None:
        """Start it, or start it again."""
        boot = {
            "name": "logs",
            "instance": time.time_ns(),
            "run_dir": str(self._bench.run_dir.path),
            "data_dir": str(self._data),
            "settings": boot_settings(logging=self._logging),
        }
        reading, self._writing = os.pipe()
        with self.log.open("ab") as log:
            command = [sys.executable, "-c", _PROGRAM, json.dumps(boot), str(reading)]
            self.process = subprocess.Popen(command, pass_fds=[reading], stderr=log)
        os.close(reading)

    def kill(self) -> None:
        """SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        os.close(self._writing)

    def close(self) -> None:
        """End it, if it runs."""
        if self.process is not None and self.process.poll() is None:
            self.kill()


class Load:
    """Records without end from a sender, as fast as they are acknowledged."""

    def __init__(self, bench: Bench) -> None:
        self.sender: RecordSender = bench.keep(
            RecordSender(bench.loop, bench.context, bench.run_dir.records, "forwarding.p", 7)
        )
        self.sent = 0
        self._bench = bench
        self._rows = 0

    @property
    def waiting(self) -> int:
        """Records that are not acknowledged."""
        return self.sender.waiting

    def send(self, count: int) -> None:
        """So many more, in batches as the loop turns."""
        for _ in range(count):
            self.sender.add(row(self.sent, timestamp=time.time()))
            self.sent += 1
        self.sender.flush()

    def until(self, count: int, what: str) -> None:
        """Send on until `count` more records are acknowledged."""
        wanted = self.sent - self.waiting + count

        def reached() -> bool:
            if self.waiting < records.ROWS_MAX // 10:
                self.send(50)
            return self.sent - self.waiting >= wanted

        self._bench.until(reached, what, seconds=60)


def targets(data: Path) -> list[str]:
    """All that a stopped indexer has stored, in the order of storing."""
    index = SearchedIndex(data / "logs")
    found: list[str] = []
    after = 0
    while after < index.last:
        tail = index.tail(QueryLogs(0.0, 1e12, 10_000, 0, None, None, None), after)
        found += [each["target_url"] for each in tail.rows]
        after = tail.last
    index.close()
    return found
