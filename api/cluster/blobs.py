"""Files that one node makes for all: in the database under their SHA-256, in parts of 1 MiB.

A file is put there first, and then named by a document (`api.objects.named.fleet_lists`). One that no document names is
removed after a while, so what was put in vain costs nothing for long.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator
from pathlib import Path

from actors.cluster.database import CHANGE, Database
from api.cluster.shared_ledger import as_of_store
from api.store import StoreError, StoreWriteError
from config.files.durable import new_file, sync

PART = 2**20
READ_AT_ONCE = 2
"""Parts that one statement returns."""


class BlobMissing(StoreError):
    """The database doesn't have this file whole: it was replaced meanwhile, or is damaged."""


class Blobs:
    """The `api.fleet.SharedFiles` of a node. Thread-safe; raises `StoreError`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, path: Path) -> str:
        """See `SharedFiles`. Parts that are there are not sent again."""
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                file.seek(0)
                there = self._touched(digest)
                for number, part in enumerate(iter(lambda: file.read(PART), b"")):
                    if number not in there:
                        self._put(digest, number, part)
        except OSError as error:
            raise StoreWriteError(f"{path}: {error.strerror or error}") from error
        return digest

    def get(self, digest: str, path: Path) -> None:
        """See `SharedFiles`. `path` has the whole file or what it had, also after a crash."""
        new = path.with_name(f".{path.name}-{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            found = hashlib.sha256()
            with new_file(new) as file:
                for part in self._parts(digest):
                    found.update(part)
                    file.write(part)
            if found.hexdigest() != digest:
                raise BlobMissing(f"the file {digest} is not whole in the fleet's database")
            new.replace(path)
            sync(path.parent)
        except OSError as error:
            raise StoreWriteError(f"{path}: {error.strerror or error}") from error
        finally:
            new.unlink(missing_ok=True)

    def _touched(self, digest: str) -> set[int]:
        """The parts that are there, which stay for a while from now on."""
        with as_of_store():
            rows = self._database.transaction(
                "UPDATE proxyfleet.blobs SET at = clock_timestamp() WHERE digest = %s RETURNING part", [digest], CHANGE
            )
        return {part for (part,) in rows}

    def _put(self, digest: str, number: int, content: bytes) -> None:
        with as_of_store():
            self._database.transaction(
                "INSERT INTO proxyfleet.blobs (digest, part, content) VALUES (%s, %s, %s) ON CONFLICT DO NOTHING",
                [digest, number, content],
                CHANGE,
            )

    def _parts(self, digest: str) -> Iterator[bytes]:
        first, rows = 0, [(b"",)] * READ_AT_ONCE
        while len(rows) == READ_AT_ONCE:
            with as_of_store():
                rows = self._database.transaction(
                    "SELECT content FROM proxyfleet.blobs WHERE digest = %s AND part >= %s AND part < %s ORDER BY part",
                    [digest, first, first + READ_AT_ONCE],
                    CHANGE,
                )
            yield from (content for (content,) in rows)
            first += READ_AT_ONCE
