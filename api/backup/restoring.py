"""A restore up to the moment at which it happens: everything is read, checked and compared beside the data."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from api import users
from api.api_keys import ApiKey
from api.audit import Broken, Trail, verify
from api.audit.context import on_behalf_of
from api.backup import replacing, sealed_keys
from api.backup.archive import Opened, Progress, no_progress
from api.backup.differing import Difference, bodies_of, differences
from api.backup.manifest import BadArchive, Manifest
from api.proxies import read_specs
from api.settings import read_stored
from api.store import Store, StoreError, migration, open_store, steps
from config.data_format import DataFormatError, Mark, write_mark
from config.paths import DataDir
from config.sealing import SealError, seal_of
from config.units import timestamp_text
from config.webhooks import SECRET_PURPOSE, WebhookRecord

_SPARE = 64 * 2**20
"""Bytes that are left free on the disk."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A restore that could happen: what it would change, and the last row of the audit trail in the backup."""

    manifest: Manifest
    differences: tuple[Difference, ...]
    audit_head: int


@contextmanager
def prepared(
    data: DataDir, archive: Opened, passphrase: str | None, progress: Progress = no_progress
) -> Iterator[Prepared]:
    """Everything of `archive` beside `data`, checked. `commit` inside of the block makes it happen; else it is undone.

    The caller holds the lock of `data`. Raises `BadArchive`, `OSError`.
    """
    _refuse_newer(archive.manifest)
    _refuse_full(data, archive.manifest)
    fresh = DataDir(replacing.begin(data))
    try:
        archive.extract(fresh.path, progress)
        _put_keys(data, fresh, archive, passphrase)
        _bring_up_to_date(fresh, archive.manifest)
        head = _checked_audit(fresh)
        yield Prepared(archive.manifest, tuple(_compared(data, fresh, archive.sealed is not None)), head)
    finally:
        if not (data.path / replacing.RESTORING / "ready").exists():
            replacing.give_up(data)


def commit(data: DataDir, prepared_: Prepared, digest: str) -> Path:
    """It happens; where the old state is kept. The restored audit trail has a row about it. Raises `OSError`."""
    fresh = DataDir(data.path / replacing.RESTORING / "new")
    made = timestamp_text(prepared_.manifest.created_at)
    details: dict[str, Any] = {"created_at": made, "product": prepared_.manifest.product, "sha256": digest}
    before = _head(data)
    trail = Trail(fresh)
    try:
        with on_behalf_of("command_line", "restore"):
            resource = {"type": "backup", "id": None, "name": None}
            trail.append("backup.restored", resource, details={**details, "replaced_head": before})
    finally:
        trail.close()
    for folder in (fresh.idempotency,):  # answers of the time after the backup would be given for what was undone
        folder.mkdir(mode=0o700)
    return replacing.commit(data)


def _refuse_newer(manifest: Manifest) -> None:
    if manifest.data_format > steps.DATA_FORMAT:
        raise BadArchive(
            f"its data have format {manifest.data_format}, and this release knows up to {steps.DATA_FORMAT}: restore"
            f" it with {manifest.product} or newer"
        )


def _bring_up_to_date(fresh: DataDir, manifest: Manifest) -> None:
    """Data of an older release become those of this one here already; the archive is what is kept of them."""
    write_mark(fresh.path, Mark(manifest.data_format, manifest.product))
    try:
        migration.bring_up_to_date(fresh, steps.STEPS)
    except DataFormatError as error:
        raise BadArchive(str(error)) from error
    for kept in fresh.path.glob("before-*"):
        shutil.rmtree(kept)


def _refuse_full(data: DataDir, manifest: Manifest) -> None:
    free = shutil.disk_usage(data.path).free
    if manifest.total + _SPARE > free:
        raise BadArchive(f"it needs {manifest.total} bytes, and {free} are free at {data.path}")


def _put_keys(data: DataDir, fresh: DataDir, archive: Opened, passphrase: str | None) -> None:
    """Those of the archive; else those that are here."""
    if archive.sealed is not None:
        if passphrase is None:
            raise BadArchive("its keys are sealed under a passphrase, which is needed")
        keys = sealed_keys.unseal(archive.sealed, passphrase, archive.head)
    else:
        keys = {path.name: path.read_bytes() for path in data.keys.iterdir()} if data.keys.is_dir() else {}
    fresh.keys.mkdir(mode=0o700)
    for name, key in keys.items():
        path = fresh.keys / Path(name).name
        path.touch(mode=0o600)
        path.write_bytes(key)


def _compared(data: DataDir, fresh: DataDir, with_keys: bool) -> list[Difference]:
    try:
        store = open_store(fresh)
        try:
            _check(store, fresh)
            then = bodies_of(store)
        finally:
            store.close()
    except (StoreError, SealError, ValidationError) as error:
        if with_keys or not (isinstance(error, SealError) or isinstance(error.__cause__, SealError)):
            raise BadArchive(f"its configuration can't be read by this release: {error}") from error
        raise BadArchive(
            f"it was made without keys, and those in {data.keys} don't open its secrets: put the key files of the"
            " installation that it was made of there, or take an archive with keys"
        ) from error
    return differences(_now(data), then)


def _now(data: DataDir) -> dict[str, Any]:
    """What is there; nothing, when it can't be read: a restore may be the way out of just that."""
    if not data.store.is_dir():
        return {}
    try:
        store = open_store(data)
    except StoreError:
        return {}
    try:
        return bodies_of(store)
    finally:
        store.close()


def _check(store: Store, fresh: DataDir) -> None:
    """Is every document one that this release knows, and does the key open every secret?"""
    seal = seal_of(fresh)
    read_specs(store, seal)
    read_stored(store)
    for document in store.find(users.COLLECTION):
        users.load(document)
    for document in store.find("api_keys"):
        ApiKey.model_validate(document.body)
    for document in store.find("webhooks"):
        seal.open(WebhookRecord.model_validate(document.body).secret_sealed, SECRET_PURPOSE)


def _checked_audit(fresh: DataDir) -> int:
    try:
        found = verify(fresh)
    except StoreError as error:
        raise BadArchive(f"its audit trail can't be read: {error}") from error
    if isinstance(found, Broken):
        raise BadArchive(f"its audit trail is broken: row {found.seq} {found.error}")
    return found.seq


def _head(data: DataDir) -> str | None:
    """The last row of the trail that is replaced, as `audit verify` prints it; None when there is none to be read."""
    try:
        found = verify(data)
    except (StoreError, sqlite3.Error):
        return None
    return None if isinstance(found, Broken) else f"{found.seq}:{found.hash}"
