"""Which process of a proxy with several workers counts in which column of its shared file (`actors.workers.columns`).

A process has its column from before its start until the kernel says that it has ended, so one that drains keeps it.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from actors.workers.columns import COLUMNS, NO_COLUMN, OWNER, Columns, make_columns, open_columns, remove_files

log = logging.getLogger(__name__)


class _ProxyColumns:
    """The file of one proxy, and the column of each instance that lives."""

    def __init__(self, columns: Columns) -> None:
        self.columns = columns
        self.by_instance: dict[int, int] = {}

    def free(self) -> int:
        """The lowest column that no living process has: what its former owner has left is used again."""
        held = set(self.by_instance.values())
        return next((column for column in range(COLUMNS) if column not in held), NO_COLUMN)

    def end(self, column: int, now: float) -> None:
        """Its process has ended at `now`, seconds of the monotonic clock."""
        self.columns.ended(column, int(1000 * now))


class WorkerColumns:
    """The columns of all proxies with several workers. `folder` is `RunDir.workers`."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._clock = clock
        self._proxies: dict[str, _ProxyColumns] = {}

    def adopt(self, living: Mapping[str, Collection[int]]) -> None:
        """Take over what the program before has left; `living` are the instances that it has started and that live."""
        try:
            found = os.listdir(self._folder)
        except FileNotFoundError:
            return
        for proxy_id in found:
            self._adopt(proxy_id, living.get(proxy_id, ()))

    def _adopt(self, proxy_id: str, living: Collection[int]) -> None:
        columns = self._open(proxy_id) if living else None
        if columns is None:
            self.remove(proxy_id)
            return
        proxy = self._proxies[proxy_id] = _ProxyColumns(columns)
        for column, instance in enumerate(columns.all_of(OWNER)):
            if instance in living:
                proxy.by_instance[instance] = column
            else:
                proxy.end(column, self._clock())

    def column_of(self, proxy_id: str, instance: int) -> int:
        """The column of a process that lives, as `allocate` gives it when it has none."""
        proxy = self._proxies.get(proxy_id)
        known = None if proxy is None else proxy.by_instance.get(instance)
        return self.allocate(proxy_id, instance) if known is None else known

    def allocate(self, proxy_id: str, instance: int) -> int:
        """The column for a process that is started now; `NO_COLUMN`: it counts for itself alone, which is logged."""
        try:
            proxy = self._proxies.get(proxy_id) or self._make(proxy_id)
        except OSError as error:
            log.error("the workers of %s can't count together: %s", proxy_id, error)
            return NO_COLUMN
        column = proxy.free()
        if column == NO_COLUMN:
            log.warning("%s has %s processes already: one more counts for itself alone", proxy_id, COLUMNS)
            return NO_COLUMN
        proxy.columns.assign(column, instance)
        proxy.by_instance[instance] = column
        return column

    def knows(self, proxy_id: str) -> bool:
        """Whether processes of this proxy have, or had, columns."""
        return proxy_id in self._proxies

    def ended(self, proxy_id: str, instance: int) -> None:
        """A process has ended, or did not start. What it had counted of connections counts no more."""
        proxy = self._proxies.get(proxy_id)
        column = None if proxy is None else proxy.by_instance.pop(instance, None)
        if proxy is not None and column is not None:
            proxy.end(column, self._clock())

    def has_living(self, proxy_id: str) -> bool:
        """Whether a process of this proxy has a column."""
        proxy = self._proxies.get(proxy_id)
        return proxy is not None and bool(proxy.by_instance)

    def remove(self, proxy_id: str) -> None:
        """The last process of the proxy has ended: what they have counted is over. Its other files stay."""
        self._proxies.pop(proxy_id, None)
        try:
            remove_files(self._folder / proxy_id)
        except OSError as error:
            log.error("the files of the workers of %s can't be removed: %s", proxy_id, error)

    def _make(self, proxy_id: str) -> _ProxyColumns:
        proxy = self._proxies[proxy_id] = _ProxyColumns(make_columns(self._folder / proxy_id))
        return proxy

    def _open(self, proxy_id: str) -> Columns | None:
        try:
            return open_columns(self._folder / proxy_id)
        except OSError as error:
            log.error("what the workers of %s have counted can't be read: %s", proxy_id, error)
            return None
