"""Fetches the lists and the pools that have a source, when they are due: one process each (`actors.lists.fetching`).

In a fleet one node does so for all (`api.objects.named.fleet_lists`).

Whatever goes wrong, the content that there is stays. The first failure after a success is an event; the interval to the
next attempt begins with a minute and doubles up to that of the list. Lists that failed have one place of those for
fetches: others are fetched whatever those take.
"""

from __future__ import annotations

import json
import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from typing import Any, Final

from actors.lists.files import CPU_MAX, Fetched, FetchJob, is_whole, remove_outdated, version_of
from actors.log_lines import ThrottledLog
from api.objects.named.fleet_lists import FleetLists
from api.objects.named.list_contents import ListState, ListStates, Sourced, asked, fetched_kind
from api.periodic_work import LoopThread
from api.store import StoreError
from config.files.secret_box import SecretBoxError
from config.model.shared_objects.lists import ListSource, Source
from config.model.shared_objects.pools import Pool
from config.net.names import Range

log = logging.getLogger(__name__)

AT_ONCE: Final = 2
"""Lists that are fetched at the same time."""
FETCH_MAX: Final = 600.0
"""Seconds that a fetch may take."""
CHECK_PERIOD: Final = 2.0
"""Seconds between two checks of what is due."""
RETRY_FIRST: Final = 60.0
"""Seconds from a first failure to the next attempt."""
JITTER: Final = 0.1
"""The part of an interval by which it varies, so that many installations don't ask at once."""
ERROR_MAX: Final = 500
"""Characters of an unforeseen error."""
_PROGRAM: Final = (sys.executable, "-P", "-m", "actors.lists.fetching")

Target = tuple[list[Range], str]
"""Where requests may not go: the product's own listeners, and the setting that permits private addresses, or empty."""


class ListFetches(LoopThread):
    """See the module. Thread-safe.

    `records` returns all lists and pools, `guard` where requests may go. `publish` gets events. `changed` is called in
    a thread of its own with the id of one that has another content. `settle` makes the files of lists that are not
    fetched, and returns the ids of those made. `opened` returns stored headers in the clear, and raises
    `SecretBoxError`. `keep` stores the upstreams of a pool and returns how many it leaves out; `has` is whether some
    are stored. `fleet` are those of other nodes.
    """

    def __init__(
        self,
        states: ListStates,
        records: Callable[[], Sequence[Sourced]],
        guard: Callable[[], Target],
        publish: Callable[[str, dict[str, Any]], None],
        changed: Callable[[str], None],
        settle: Callable[[Sequence[Sourced]], Iterable[str]] = lambda _records: (),
        fetch_max: float = FETCH_MAX,
        opened: Callable[[Mapping[str, str]], dict[str, str]] = dict,
        keep: Callable[[Pool, Sequence[Mapping[str, Any]]], int] = lambda _pool, _upstreams: 0,
        has: Callable[[Pool], bool] = lambda _pool: True,
        fleet: FleetLists | None = None,
    ) -> None:
        super().__init__("list-fetches", self._fetch_due)
        self.states = states
        self._fleet = fleet
        self._records = records
        self._keep = keep
        self._has = has
        self._guard = guard
        self._publish = publish
        self._changed = changed
        self._settle = settle
        self._fetch_max = fetch_max
        self._opened = opened
        self._errors = ThrottledLog(log, "lists can't be fetched or compiled")
        self._lock = threading.Lock()
        self._wanted: set[str] = set()
        self._whole: set[str] = set()
        """Files that were checked once."""
        self._versions: dict[str, tuple[str, str]] = {}
        """Of the files that lists are read from: which was there last, and which was read."""
        self._under_way: set[str] = set()
        self._retried = ""
        """The one list under way whose last fetch failed."""
        self._processes: set[subprocess.Popen[str]] = set()
        self._workers = ThreadPoolExecutor(AT_ONCE, "list-fetch")

    def close(self) -> None:
        """End, with the fetches under way: the next start repeats them."""
        self.end()
        with self._lock:
            for process in self._processes:
                process.kill()
        super().close()
        self._workers.shutdown(cancel_futures=True)

    def refresh(self, list_id: str) -> None:
        """Fetch this list as soon as possible."""
        with self._lock:
            self._wanted.add(list_id)
        self.soon()

    def is_under_way(self, list_id: str) -> bool:
        """Whether it is being fetched, or about to be."""
        with self._lock:
            return list_id in self._wanted or list_id in self._under_way

    # --- when ---

    def _fetch_due(self) -> float:
        try:
            records = self._records()
            for list_id in self._fleet.follow(records) if self._fleet else ():
                self._changed(list_id)
            self._begin_due(records)
            self._settle_others(records)
            self._forget_others(records)
        except Exception as error:  # noqa: BLE001 - whatever it is about, the other lists are fetched on
            self._errors.error(error)
        else:
            self._errors.recovered()
        return CHECK_PERIOD

    def _settle_others(self, records: Sequence[Sourced]) -> None:
        for list_id in self._settle(records):
            self._changed(list_id)

    def _forget_others(self, records: Sequence[Sourced]) -> None:
        """Forget deleted lists, and files that are not current any more."""
        ids = {each.id for each in records}
        self.states.keep_only(ids)
        self._whole &= {self.states.get(each.id).file for each in records if each.source}
        for deleted in self._versions.keys() - ids:
            del self._versions[deleted]
        with self._lock:
            self._wanted &= ids

    def _begin_due(self, records: Sequence[Sourced]) -> None:
        now = time.time()
        for record in sorted(records, key=lambda each: self.states.get(each.id).next_at if each.source else now):
            with self._lock:
                wanted = record.id in self._wanted
                if self.has_ended or record.id in self._under_way or record.source is None:
                    continue
                if not wanted and not (self._asks(record) and self._is_due(record, now)):
                    continue
                if self.states.get(record.id).failures:
                    if self._retried:
                        continue
                    self._retried = record.id
                self._wanted.discard(record.id)
                self._under_way.add(record.id)
            self._workers.submit(self._fetch, record, record.source)

    def _asks(self, record: Sourced) -> bool:
        return self._fleet is None or self._fleet.asks(record)

    def _put(self, record: Sourced, state: ListState) -> None:
        """The state is this one now, on all nodes. Raises `OSError` and `StoreError`."""
        if self._fleet is not None:
            self._fleet.share(record, state)
        self.states.put(record.id, state)

    def _is_due(self, record: Sourced, now: float) -> bool:
        state = self.states.get(record.id)
        if now >= state.next_at or not state.has_asked(record) or self._is_replaced(record, state):
            return True
        if isinstance(record, Pool):
            return bool(state.file) and not self._has(record) and not state.failures  # restored without its secrets
        if state.file and state.file not in self._whole:
            if not is_whole(self.states.folder / state.file, state.kind):
                return not state.failures  # as of a backup that was made while it was replaced
            self._whole.add(state.file)
        return False

    def _is_replaced(self, record: Sourced, state: ListState) -> bool:
        """Whether the file that a list is read from is another one, and is not being written any more."""
        path = record.source.file if isinstance(record.source, ListSource) else None
        if not path:
            return False
        try:
            version = version_of(os.stat(path))
        except OSError:
            return False
        before, tried = self._versions.get(record.id, ("", ""))
        is_new = version == before and version not in (tried, state.etag)
        self._versions[record.id] = version, version if is_new else tried
        return is_new

    # --- fetching ---

    def _fetch(self, record: Sourced, source: Source) -> None:
        try:
            self._store(record, source, self._result_of(record, source))
        except OSError as error:
            self._unstored(record, source, f"its state can't be stored: {error.strerror or error}")
        except StoreError as error:
            self._unstored(record, source, f"it can't be stored: {error}")
        except Exception as error:
            log.exception("what was fetched of the %s %s can't be used", _what(record), record.name)
            self._unstored(record, source, _unforeseen(error))
        finally:
            with self._lock:
                self._under_way.discard(record.id)
                if self._retried == record.id:
                    self._retried = ""
                    self.soon()

    def _result_of(self, record: Sourced, source: Source) -> Fetched:
        """The result; whatever goes wrong is its error."""
        try:
            return self._fetched(record, source)
        except SecretBoxError as error:
            return Fetched("its headers can't be opened; the log says why", cause=str(error))
        except OSError as error:
            return Fetched(f"no process that fetches it can be started: {error.strerror or error}")
        except Exception as error:
            log.exception("fetching the %s %s failed", _what(record), record.name)
            return Fetched(_unforeseen(error))

    def _fetched(self, record: Sourced, source: Source) -> Fetched:
        state = self.states.get(record.id)
        same = state.is_of(record) and self._is_there(record, state)
        own, excepted_by = self._guard()
        job = FetchJob(
            record.id, str(self.states.folder), fetched_kind(record), source.url or "", source.form, source.max_bytes,
            state.etag if same else "", state.last_modified if same else "", state.entries if same else 0,
            own, excepted_by, "" if source.url else source.place, self._opened(source.headers or {}),
        )  # fmt: skip
        return self._result(json.dumps(asdict(job)))

    def _is_there(self, record: Sourced, state: ListState) -> bool:
        if isinstance(record, Pool):
            return self._has(record)
        return is_whole(self.states.folder / state.file, record.kind)

    def _result(self, job: str) -> Fetched:
        """What a process makes of the job. Raises `OSError`."""
        with self._lock:
            if self.has_ended:
                return Fetched("the service is ending")
            process = subprocess.Popen(_PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            self._processes.add(process)
        try:
            written, _ = process.communicate(job, self._fetch_max)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return Fetched(f"it was not complete within {self._fetch_max:g} s")
        finally:
            with self._lock:
                self._processes.discard(process)
        if process.returncode == -signal.SIGXCPU:
            return Fetched(f"reading it takes more than {CPU_MAX} s of a processor")
        if process.returncode:
            return Fetched(f"the process that fetches it has ended with status {process.returncode}")
        return _read(json.loads(written))

    # --- the result ---

    def _store(self, record: Sourced, source: Source, result: Fetched) -> None:
        if self.has_ended:
            return
        before, now = self.states.get(record.id), time.time()
        if result.error:
            self._failed(record, source, before, result, now)
            return
        after = before.model_copy(
            update={
                "asked": asked(record),
                "fetched_at": now,
                "next_at": now + _varied(source.interval),
                "failures": 0,
                "last_error": "",
            }
        )
        if result.file:
            if isinstance(record, Pool):
                result = self._kept(record, before, result)
            known = {"kind": fetched_kind(record), "url": source.place, "form": source.form}
            names = ("file", "etag", "last_modified", "entries", "skipped", "examples")
            after = after.model_copy(update={**known, **{name: getattr(result, name) for name in names}})
        self._put(record, after)
        if before.failures:
            log.info("the %s %s is fetched again", _what(record), record.name)
        if after.file != before.file:
            log.info("the %s %s has %d entries now", _what(record), record.name, after.entries)
            self._changed(record.id)
            remove_outdated(self.states.folder, record.id, (after.file, before.file))

    def _kept(self, pool: Pool, before: ListState, result: Fetched) -> Fetched:
        """The result without upstreams that are left out; what is there already is not stored once more."""
        if result.file == before.file and self._has(pool):
            return replace(result, entries=before.entries, skipped=before.skipped)
        left_out = self._keep(pool, result.upstreams)
        return replace(result, entries=result.entries - left_out, skipped=result.skipped + left_out)

    def _unstored(self, record: Sourced, source: Source, error: str) -> None:
        """As after a failure, until the next start."""
        log.error("the %s %s: %s", _what(record), record.name, error)
        before = self.states.get(record.id)
        self.states.remember(record.id, _after_failure(record, source, before, error, time.time()))

    def _failed(self, record: Sourced, source: Source, before: ListState, result: Fetched, now: float) -> None:
        error = result.error
        if not before.failures or before.last_error != error:
            log.warning(
                "the %s %s can't be fetched, its content stays: %s", _what(record), record.name, result.cause or error
            )
        if not before.failures:
            what = _what(record)
            self._publish(f"{what}.error", {f"{what}_id": record.id, "name": record.name, "error": error})
        self._put(record, _after_failure(record, source, before, error, now))


def _what(record: Sourced) -> str:
    return "pool" if isinstance(record, Pool) else "list"


def _after_failure(record: Sourced, source: Source, before: ListState, error: str, now: float) -> ListState:
    pause = min(float(source.interval), RETRY_FIRST * 2 ** min(before.failures, 20))
    update = {
        "asked": asked(record),
        "failures": before.failures + 1,
        "last_error": error,
        "next_at": now + _varied(pause),
    }
    return before.model_copy(update=update)


def _unforeseen(error: Exception) -> str:
    return f"fetching it failed: {type(error).__name__}: {error}"[:ERROR_MAX]


def _varied(seconds: float) -> float:
    return seconds * random.uniform(1 - JITTER, 1 + JITTER)  # noqa: S311 - no secret


def _read(given: Mapping[str, Any]) -> Fetched:
    return Fetched(**{**given, "examples": [(number, text, why) for number, text, why in given["examples"]]})
