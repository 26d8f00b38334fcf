"""The file of the fleet as a whole: its one writer, its transactions, whether it is sound.

Documents, accounts, history and audit trail are tables of it (`api.store.schema`). Every commit is synced before it
returns (WAL with `synchronous=FULL`), unless it asks for less. A process killed at any statement leaves the file as it
was before the change or behind it.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

from actors.sqlite import FORMAT, FileTooNew, open_database, open_for_reading, sync_each_commit
from api.store.interface import StoreDamaged, StoreError, StoreTooNew, StoreWriteError
from api.store.rows import damage
from api.store.schema import CHECKED_AT_START, NUMBERED, READ_AT_START, SCHEMA
from config.files.paths import DataDir, PathError

log = logging.getLogger(__name__)

MEMORY = 64 * 1024
"""KiB of memory for a large transaction; with less, SQLite writes pages of the indexes again and again."""
SPARE = 2**20
"""Bytes that a change leaves free on the disk: SQLite needs them to bring its log into the file."""

Confirm = Callable[[sqlite3.Connection, int], None]
"""Called within a transaction with its number, when all is written; raises `StoreError` to have it rolled back."""

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


class FleetFile:
    """The file, open for its one writer. Thread-safe.

    What is done `after` a transaction follows its commit, before another thread can begin one.
    """

    def __init__(self, path: Path, confirm: Confirm | None = None) -> None:
        """Open the file, or make it. `confirm` is called before each commit that has a number, and may refuse it.

        Raises `StoreError`.
        """
        self.path = path
        self._confirm = confirm
        self._lock = threading.RLock()
        self._writer = 0
        """The thread of the transaction that is under way, 0 for none."""
        self._depth = 0
        self._after: list[Callable[[], None]] = []
        self._after_failure: list[Callable[[], None]] = []
        self._number = 0
        """Of the commit that is under way, once something has asked for it."""
        self._uncertain = ""
        """Why it is not known whether a change was made; empty while it is."""
        self._damage = ""
        """What SQLite has found since the start, in tables that a start doesn't read; empty for nothing."""
        with translated(path):
            self.database = open_database(path, SCHEMA, any_thread=True)
            try:
                sync_each_commit(self.database)
                self.database.execute("PRAGMA secure_delete=ON")  # hashes and sealed secrets are gone when deleted
                require_sound(self.database, path)
                self.bring_in()
                self._reader = ReadingConnection(path)
                self._inode = path.stat().st_ino
            except BaseException:
                self.database.close()
                raise

    @contextmanager
    def transaction(self, size: int = 0, synced: bool = True) -> Iterator[sqlite3.Connection]:
        """All that is done within is committed at its end, or nothing of it. One within another is a part of it.

        `size` is how many bytes it will write, about. One that is not `synced` a power cut may undo, until the next
        that is; it is for what the ledger says again. Raises `StoreError`.
        """
        with self._lock, ExitStack() as published:
            if self._depth:
                with self._part() as database:
                    yield database
                return
            self._depth, self._number, self._writer = 1, 0, threading.get_ident()
            try:
                with self._translated(), self._synced(synced), self._whole(size, published) as database:
                    yield database
            except BaseException:
                # a transaction of one of these that fails, too, doesn't do them again
                self._depth, self._after, self._after_failure = 0, self._after_failure, []
                self._do_after()
                raise
            finally:
                self._depth, self._after_failure, self._writer = 0, [], 0
            self._do_after()

    @contextmanager
    def _synced(self, synced: bool) -> Iterator[None]:
        if synced:
            yield
            return
        self.database.execute("PRAGMA synchronous=NORMAL")
        try:
            yield
        finally:
            self.database.execute("PRAGMA synchronous=FULL")

    @contextmanager
    def _whole(self, size: int, published: ExitStack) -> Iterator[sqlite3.Connection]:
        self._refuse_uncertain()
        self.require_room(size)
        self.database.execute("BEGIN IMMEDIATE")
        try:
            yield self.database
            self._require_begun()
            if self._number and self._confirm is not None:
                self._confirm(self.database, self._number)
            published.enter_context(self._reader())  # who reads sees all of it or nothing
            self._commit()
        except BaseException as error:
            if self.database.in_transaction:  # SQLite has rolled back by itself after some errors
                self.database.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error | StoreWriteError):
                self.bring_in()  # what it has left in the log may fill the disk
            raise

    @contextmanager
    def _part(self) -> Iterator[sqlite3.Connection]:
        known, point = len(self._after), f"part_{self._depth}"
        self._depth += 1
        try:
            with self._translated():
                self._require_begun()
                self.database.execute(f"SAVEPOINT {point}")
                try:
                    yield self.database
                except BaseException:
                    del self._after[known:]
                    if self.database.in_transaction:  # SQLite has rolled back all of it after some errors
                        self.database.execute(f"ROLLBACK TO {point}")
                        self.database.execute(f"RELEASE {point}")
                    raise
                self.database.execute(f"RELEASE {point}")
        finally:
            self._depth -= 1

    def _require_begun(self) -> None:
        """What follows an error for which SQLite rolls back all of it would be made alone."""
        if not self.database.in_transaction:
            raise StoreWriteError(f"{self.path}: the change was rolled back")

    def _commit(self) -> None:
        """Once a sync has failed it is unknown what a start would find: nothing more is built on it."""
        try:
            self.database.execute("COMMIT")
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_FULL:
                self._uncertain = f"{error}; restart to read what is on disk"
            raise

    def _do_after(self) -> None:
        """All of it, whatever becomes of one: the change is made."""
        after, self._after = self._after, []
        with ExitStack() as stack:
            for each in reversed(after):
                stack.callback(each)

    def after(self, action: Callable[[], None]) -> None:
        """Within a transaction: do this when it is committed."""
        self._after.append(action)

    def after_failure(self, action: Callable[[], None]) -> None:
        """Do this when nothing of this transaction was done; outside of one, now."""
        with self._lock:
            if self._depth:
                self._after_failure.append(action)
            else:
                action()

    def number(self) -> int:
        """Within a transaction: the number of this commit, which all that it writes has as its revision.

        Numbers have no gaps. A transaction that asks for none has none.
        """
        self._number = self.upcoming()
        self.database.execute("UPDATE steps SET revision = ?", [self._number])  # a part may have been taken back
        return self._number

    def next_number(self) -> int:
        """As `number`, of one more commit: several of other nodes are taken in one transaction."""
        self._number = (self._number or last_number(self.database)) + 1
        return self.number()

    def jump(self, number: int) -> None:
        """Within a transaction: this commit has this number, which is that of another file."""
        self._number = number
        self.number()

    def upcoming(self) -> int:
        """Within a transaction: the number of this commit if it has one, else of the next that has one."""
        return self._number or last_number(self.database) + 1

    @property
    def last_number(self) -> int:
        """The number of the last commit."""
        with self.reading() as database:
            return last_number(database)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Read what the last commit has left, with no other one meanwhile; within a transaction what is written there.

        It waits for no transaction that is under way: in a fleet one takes as long as the database does.
        """
        with self._translated():
            if self._writer == threading.get_ident():
                yield self.database
                return
            with self._reader() as database:
                yield database

    @contextmanager
    def with_memory(self) -> Iterator[sqlite3.Connection]:
        """The writer's connection, with memory for many changes, while no other thread has a transaction."""
        with self._lock, self._translated():
            (before,) = self.database.execute("PRAGMA cache_size").fetchone()
            self.database.execute(f"PRAGMA cache_size = -{MEMORY}")
            try:
                yield self.database
            finally:
                self.database.execute(f"PRAGMA cache_size = {before}")

    @contextmanager
    def filling(self, tables: Collection[str]) -> Iterator[None]:
        """Within a transaction: indexes of those of the tables that are empty are made at the end of the block.

        So each is written once, and in its order. What is unique is looked up meanwhile as ever.
        """
        empty = [each for each in tables if self.database.execute(f"SELECT 1 FROM {each} LIMIT 1").fetchone() is None]  # noqa: S608 - names of ours
        indexes = [
            row
            for each in empty
            for row in self.database.execute(
                "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND tbl_name = ? AND sql IS NOT NULL", [each]
            )
        ]
        for name, _ in indexes:
            self.database.execute(f"DROP INDEX {name}")
        yield
        for _, sql in indexes:
            self.database.execute(sql)

    def bring_in(self) -> None:
        """Bring what is in the log into the file, and shorten it. What can't be done now is with a later change."""
        with self._lock:
            try:
                self.database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:
                log.warning("%s: its log could not be brought into it: %s", self.path, error)

    def check(self) -> None:
        """Raise `StoreError` when the file can't be relied on, or is no longer the one at its path."""
        self._refuse_uncertain()
        if self._damage:
            raise StoreDamaged(self._damage)
        try:
            found = self.path.stat().st_ino
        except OSError as error:
            raise StoreDamaged(f"{self.path}: {error.strerror or error}") from error
        if found != self._inode:
            raise StoreDamaged(f"{self.path}: was replaced while it is in use; restart")

    def close(self) -> None:
        """Close the file. What is in its log is brought into it."""
        with self._lock:
            self._reader.close()
            self.bring_in()  # SQLite does so for the last one that closes it, and forwarding actors have it open
            self.database.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        """As `translated`; damage is remembered."""
        try:
            with translated(self.path):
                yield
        except StoreDamaged as error:
            if isinstance(error.__cause__, sqlite3.Error):  # else it is of a document, or of another file
                self._damage = str(error)
            raise

    def _refuse_uncertain(self) -> None:
        if self._uncertain:
            raise StoreWriteError(f"{self.path}: {self._uncertain}")

    def require_room(self, size: int) -> None:
        """Refuse a change of so many bytes, about, that the disk has no room for. Raises `StoreWriteError`.

        The log has all pages of a change, and brings them into the file later.
        """
        if shutil.disk_usage(self.path.parent).free < SPARE + 3 * size:
            raise StoreWriteError(f"{self.path}: the disk is full")


def check_fleet_file(data: DataDir) -> None:
    """Raise `StoreError` when the file is damaged or of a later release; nothing is changed. None at all is fine."""
    file = data.fleet
    if is_blank(file):
        return
    with translated(file), closing(open_for_reading(file)) as database:
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found > FORMAT:
            raise StoreTooNew(f"{file}: has format {found}; this release reads format {FORMAT}")
        database.execute("BEGIN")  # a snapshot: while the product commits, the parts of its changes would disagree
        require_sound(database, file)


def last_number(database: sqlite3.Connection) -> int:
    """The number of the last commit."""
    return int(database.execute("SELECT revision FROM steps").fetchone()[0])


def newest_number(file: Path) -> int:
    """The highest number that a file has, also of a damaged one as far as it can be read; 0 for none."""
    newest = 0
    with suppress(sqlite3.Error), closing(open_for_reading(file, alone=True)) as database:
        for table in ("steps", *NUMBERED):
            with suppress(sqlite3.Error, ValueError, TypeError, UnicodeDecodeError):
                found = database.execute(f"SELECT max(revision) FROM {table}").fetchone()  # noqa: S608 - names of ours
                newest = max(newest, int(found[0] or 0))
    return newest


def require_sound(database: sqlite3.Connection, file: Path) -> None:
    """Raise `StoreDamaged` when SQLite or the sums of documents find damage, or the file has other tables than ours.

    History and audit trail, which may be large, aren't read.
    """
    there = {each for (each,) in database.execute("SELECT name FROM sqlite_schema")}  # all but in a `FORMER` one
    for check, tables in (("integrity_check", READ_AT_START), ("quick_check", CHECKED_AT_START)):
        for table in (each for each in tables if each in there):
            (found,) = database.execute(f"PRAGMA {check}({table})").fetchone()
            if found != "ok":
                raise StoreDamaged(f"{file}: is damaged: {found}; restore it from a backup")
    if damaged := damage(database):
        raise StoreDamaged(f"{file}: is damaged: {damaged}; restore it from a backup")


@contextmanager
def translated(file: Path) -> Iterator[None]:
    """Errors of SQLite and of the disk as those of stores. None has the text of a document in it."""
    try:
        yield
    except FileTooNew as error:
        raise StoreTooNew(str(error)) from error
    except (sqlite3.Error, UnicodeDecodeError) as error:
        code, text = getattr(error, "sqlite_errorcode", 0) & 0xFF, str(error)
        if isinstance(error, UnicodeDecodeError) or text.startswith("Could not decode"):
            raise StoreDamaged(f"{file}: is damaged: a text is not UTF-8; restore it from a backup") from None
        if code in _DAMAGED or text.startswith(("no such table", "no such column")):
            raise StoreDamaged(f"{file}: is damaged: {text}; restore it from a backup") from error
        raise StoreWriteError(f"{file}: {text}") from error
    except PathError as error:
        raise StoreError(str(error)) from error
    except OSError as error:
        raise StoreWriteError(f"{file}: {error.strerror or error}") from error


class ReadingConnection:
    """A connection that only reads: what takes long on it holds up no change. Thread-safe. Raises `StoreError`."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.RLock()
        with translated(file):
            self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._database.execute("PRAGMA query_only=1")

    @contextmanager
    def __call__(self) -> Iterator[sqlite3.Connection]:
        """The database, for one thread at a time."""
        with self._lock, translated(self._file):
            yield self._database

    def close(self) -> None:
        """Close it, when nothing reads."""
        with self._lock:
            self._database.close()


def is_blank(file: Path) -> bool:
    """Whether there is no such file, or nothing in it: SQLite takes that for a new one."""
    return not file.exists() or not file.stat().st_size
