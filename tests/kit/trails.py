"""The audit trail of a data directory that no product has open."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from api.audit.trail import Trail
from api.store.fleet_file import FleetFile
from config.files.paths import DataDir


@contextmanager
def opened_trail(data: DataDir) -> Iterator[Trail]:
    with closing(FleetFile(data.fleet)) as file, closing(Trail(file)) as trail:
        yield trail
