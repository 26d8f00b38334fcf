"""What processes count together (`actors.state`), as the supervisor sees it: which of them live, and which files stay.

A process has its number from before its start until the kernel says that it has ended, so one that drains keeps it. The
files of a proxy go when it is stopped. While it sleeps, that with its counters stays for as long as one of them counts;
what is known of its own upstreams stays, eight kilobytes for a few of them.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path

from actors.pools.state import OWN_TABLE
from actors.state.live_state import ACCOUNTS, PROCESSES, PROXY_TABLE
from actors.state.processes import UNOWNED, ProcessPlaces, make_places
from actors.state.table import open_table
from actors.state.usage import USAGE

log = logging.getLogger(__name__)

_OF_UPSTREAMS = f".{OWN_TABLE.name}"


class LiveStateFiles:
    """Those in `folder`, which is `RunDir.state`. `clock` is the monotonic one.

    `later` calls something after so many seconds.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] = lambda _seconds, _call: None,
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._later = later
        self._awaited: set[str] = set()
        """Proxies whose file is looked at again when its time is over."""
        self._places: ProcessPlaces | None = None
        self._living: dict[str, set[int]] = {}
        """The instances of each proxy."""

    def adopt(self, living: Mapping[str, Collection[int]]) -> None:
        """Take over what the program before has left; `living` are the instances that it has started and that live."""
        self._living = {proxy_id: set(instances) for proxy_id, instances in living.items() if instances}
        if self._made() is not None:
            for name in os.listdir(self._folder):
                if name not in (ACCOUNTS, PROCESSES, USAGE) and not name.endswith(_OF_UPSTREAMS):
                    self.remove_spent(name)

    def begin(self, proxy_id: str, instance: int) -> int:
        """The number of a process that is started now; `UNOWNED`: it counts for itself alone, which is logged."""
        self._living.setdefault(proxy_id, set()).add(instance)
        places = self._made()
        number = UNOWNED if places is None else places.begin(instance)
        if number == UNOWNED and places is not None:
            log.warning("there are too many processes to count together: one more of %s counts for itself", proxy_id)
        return number

    def end(self, proxy_id: str, instance: int) -> None:
        """A process has ended, or did not start: at once its connections count no more."""
        living = self._living.get(proxy_id, set())
        living.discard(instance)
        if not living:
            self._living.pop(proxy_id, None)
        if self._places is not None:
            self._places.end(instance)

    def has_living(self, proxy_id: str) -> bool:
        """Whether a process of this proxy lives."""
        return proxy_id in self._living

    def remove(self, proxy_id: str) -> None:
        """What the processes of a proxy have counted is over."""
        self._unlink(proxy_id)
        self._unlink(proxy_id + _OF_UPSTREAMS)

    def remove_spent(self, proxy_id: str) -> None:
        """Remove the file with the counters of a proxy without processes as soon as nothing of it counts any more."""
        if self.has_living(proxy_id) or self._places is None or proxy_id in self._awaited:
            return
        try:
            table = open_table(self._folder / proxy_id, PROXY_TABLE, self._places, UNOWNED, self._clock)
        except OSError as error:
            log.error("what the processes of %s have counted can't be read: %s", proxy_id, error)
            return
        seconds = 0.0 if table is None else table.spent_after()
        if table is not None:
            table.close()
        if not seconds:
            self._unlink(proxy_id)
        else:
            self._awaited.add(proxy_id)
            self._later(seconds, partial(self._time_is_over, proxy_id))

    def _time_is_over(self, proxy_id: str) -> None:
        self._awaited.discard(proxy_id)
        self.remove_spent(proxy_id)

    def _unlink(self, name: str) -> None:
        try:
            (self._folder / name).unlink(missing_ok=True)
        except OSError as error:
            log.error("what processes have counted, %s, can't be removed: %s", name, error)

    def _made(self) -> ProcessPlaces | None:
        if self._places is None:
            try:
                self._folder.mkdir(mode=0o700, exist_ok=True)
                self._places = make_places(self._folder / PROCESSES)
                self._places.adopt(set().union(*self._living.values()))
            except OSError as error:
                log.error("processes can't count together: %s", error)
        return self._places
