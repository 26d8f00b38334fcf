"""A restore up to its commit: everything is read, checked and compared beside the data.

What it would change is reported by names of resources, and of the fields that differ. No values, so no secrets either.
The state of now is read with the lock held; nothing is written, and damage is tolerated. Metrics and the outbox of
webhooks always differ, since time goes on, and are not reported; nor is the audit trail, unless there is no whole one
now. Credentials are restored with their accounts and are not compared: they come and go with every job.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from actors.sqlite import open_for_reading
from api.audit.trail import Broken, verify
from api.backup import atomic_swap
from api.backup.archive import BadArchive, Manifest, OpenArchive, Progress, no_progress, unseal_keys
from api.backup.atomic_swap import CompletedRestore
from api.engine.commit import open_engine
from api.engine.kind import Kind
from api.engine.one_machine import of_one_machine
from api.history.recorder import newest_revision
from api.objects.kinds import KINDS
from api.objects.live_settings import read_stored
from api.objects.named.named_kind import without_lost_password
from api.objects.named.shared_objects import FETCHED_UPSTREAMS, FetchedUpstreams, PoolSources, SharedObjects
from api.objects.proxies.proxy_cache import ProxyCache
from api.objects.proxies.proxy_specs import specs_of
from api.security import signing, tokens, users
from api.security.api_keys import ApiKey
from api.security.users import ADMINISTRATOR
from api.store import RECOVERY_STEP, FleetStore, Store, StoreError, Write, check_fleet_file, open_store, start_over
from api.store.accounts.columns import TABLES
from api.store.fleet_file import newest_number
from config.files.durable import DATA_FORMAT, NAME, DataFormatError, Mark, require_own_format, write_mark
from config.files.paths import DataDir
from config.files.secret_box import SecretBox, SecretBoxError, secret_box_of
from config.model.nodes import COLLECTION as NODES
from config.passwords import check_password
from config.settings.runtime import SettingsUpdate
from config.text.formatting import size_text, timestamp_text, worded

COLLECTIONS = (*(name for name in (*KINDS, "api_keys", "settings") if name not in TABLES), "plans", "accounts")
PASSING = frozenset(("created_at", "updated_at", "last_login", "last_used"))
NAMED_MAX = 100
"""Accounts of one change that are named one by one; of more of them there is only the number."""

Change = Literal["added", "changed", "removed"]


Digests = Mapping[str, tuple[str, bytes]]
"""By id the name of a document and a digest of what lasts: there may be hundreds of thousands."""


@dataclass(frozen=True, slots=True)
class BackupDifference:
    """`added` is what only the backup has, `removed` what only is there now."""

    kind: str
    name: str
    change: Change
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CurrentState:
    """The state that a restore would replace: the number of the last commit, the key files by name, the audit trail's
    head, the last revision (`api.history`), digests of documents by collection and id, and a copy of the configuration.

    What can't be read counts as missing, since a restore may be meant to repair just that.
    """

    number: int = 0
    keys: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    audit_head: str | None = None
    last_revision: int = 0
    documents: Mapping[str, Digests] = field(default_factory=dict)
    copy: DataDir | None = None


def read_current_state(data: DataDir, scratch: Path) -> CurrentState:
    """The state of `data`. Copies are made in the new folder `scratch`. Raises `OSError`."""
    keys = key_files(data)
    if not data.fleet.is_file():
        return CurrentState(keys=keys)
    copy = DataDir(scratch)  # since opening brings the log into the file
    copy.path.mkdir(mode=0o700)
    for file in data.path.glob(f"{data.fleet.name}*"):
        shutil.copy(file, copy.path)
    known = newest_number(copy.fleet), keys, audit_head(copy), _last_revision(copy)
    try:
        require_own_format(data.path)
        with closing(open_store(copy)) as store:
            return CurrentState(*known, {name: dict(_digests(store, name)) for name in COLLECTIONS}, copy)
    except (DataFormatError, StoreError, ValueError):
        return CurrentState(*known)


def key_files(data: DataDir) -> dict[str, bytes]:
    """The content of the key files, by name."""
    files = data.keys.iterdir() if data.keys.is_dir() else ()
    return {path.name: path.read_bytes() for path in files if path.is_file()}


def _last_revision(data: DataDir) -> int:
    try:
        with closing(open_for_reading(data.fleet, alone=True)) as database:
            return newest_revision(database)
    except sqlite3.Error:
        return 0  # damage


def audit_head(data: DataDir) -> str | None:
    """The last row of the trail, as `audit verify` prints it; None when there is no whole trail."""
    try:
        found = verify(data, alone=True)
    except (StoreError, sqlite3.Error):
        return None
    return None if isinstance(found, Broken) else f"{found.seq}:{found.hash}"


def differences(now: CurrentState, store: FleetStore, keys: Mapping[str, bytes]) -> Iterator[BackupDifference]:
    """From what is there now to the `store` and the `keys` of the backup. Raises `StoreError`."""
    with ExitStack() as stack:
        present = None if now.copy is None else stack.enter_context(closing(open_store(now.copy)))
        for collection in COLLECTIONS:
            yield from _of_collection(collection, now.documents.get(collection, {}), present, store)
    for change, names in _compared(now.keys, keys):
        yield from (BackupDifference("keys", name, change) for name in sorted(names))
    if now.audit_head is None:
        yield BackupDifference("audit", "trail", "added")


def _compared(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[tuple[Change, list[str]]]:
    yield "added", [key for key in after if key not in before]
    yield "changed", [key for key in after if key in before and before[key] != after[key]]
    yield "removed", [key for key in before if key not in after]


def _of_collection(
    collection: str, before: Digests, now: FleetStore | None, then: FleetStore
) -> Iterator[BackupDifference]:
    after: Digests = dict(_digests(then, collection))
    for change, keys in _compared(before, after):
        if collection in TABLES and len(keys) > NAMED_MAX:
            yield BackupDifference(collection, f"{len(keys)} of them", change)
            continue
        for name, key in sorted(((after if key in after else before)[key][0], key) for key in keys):
            yield BackupDifference(collection, name, change, _fields(now, then, collection, key))


def _digests(store: FleetStore, collection: str) -> Iterator[tuple[str, tuple[str, bytes]]]:
    found = store.accounts.documents(collection) if collection in TABLES else store.every(collection)
    for document in found:
        body = document.body
        lasting = json.dumps({name: value for name, value in body.items() if name not in PASSING}, sort_keys=True)
        name = str(body.get("name") or body.get("username") or document.id)
        yield document.id, (name, hashlib.sha256(lasting.encode()).digest())


def _fields(now: FleetStore | None, then: FleetStore, collection: str, key: str) -> tuple[str, ...]:
    """Of a document that has changed. Accounts are only named."""
    found = [None if store is None or collection in TABLES else store.get(collection, key) for store in (now, then)]
    if None in found:
        return ()
    old, new = (each.body for each in found if each is not None)
    names = dict.fromkeys((*new, *old))
    return tuple(name for name in names if name not in PASSING and old.get(name) != new.get(name))


_SPARE = 64 * 2**20
"""Bytes that are left free on the disk."""


@dataclass(frozen=True, slots=True)
class LostSecret:
    """One secret that could not be opened: the kind and name of its resource, and the field."""

    kind: str
    name: str
    field: str


@dataclass(frozen=True, slots=True)
class PreparedRestore:
    """A restore that could happen: what it would change, what is there now, and the secrets that it loses."""

    manifest: Manifest
    differences: tuple[BackupDifference, ...]
    current: CurrentState
    lost: tuple[LostSecret, ...] = ()


@contextmanager
def prepare_restore(
    data: DataDir,
    archive: OpenArchive,
    passphrase: str | None,
    progress: Progress = no_progress,
    without_secrets: bool = False,
) -> Iterator[PreparedRestore]:
    """Put everything of `archive` beside `data` and check it. Without `commit` inside the block all is undone.

    With `without_secrets` the keys of the archive are not used, and secrets that the present keys do not open are
    removed. The caller holds the lock of `data`. Raises `BadArchive`, `OSError`.
    """
    _refuse_other_format(archive.manifest)
    _refuse_full(data, archive.manifest)
    _refuse_mounts(data, archive.manifest)
    fresh = DataDir(atomic_swap.begin(data))
    try:
        now = read_current_state(data, fresh.path.with_name("now"))
        archive.extract(fresh.path, progress)
        with _read_by_this_release():
            check_fleet_file(fresh)
        sealed = None if without_secrets else archive.sealed
        _install_keys(now, fresh, archive, sealed, passphrase)
        write_mark(fresh.path, Mark())
        _check_audit(fresh)
        if archive.manifest.node:
            with _read_by_this_release(), closing(open_store(fresh)) as store:
                _make_one_machine(store, archive.manifest.node)
        lost = list[LostSecret]()
        if without_secrets:
            with _read_by_this_release(), closing(open_store(fresh)) as store:
                seal = secret_box_of(fresh)
                seal.ensure()
                lost = remove_lost_secrets(store, seal)
        found = _differences_to(data, now, fresh, sealed is not None)
        yield PreparedRestore(archive.manifest, tuple(found), now, tuple(lost))
    finally:
        if not (data.path / atomic_swap.RESTORING / "ready").exists():
            atomic_swap.discard(data)


@contextmanager
def opened_backup(
    data: DataDir, archive: OpenArchive, folder: Path, passphrase: str | None, progress: Progress = no_progress
) -> Iterator[tuple[FleetStore, SecretBox]]:
    """What `archive` has, put into this empty private folder, with what opens its secrets: without a passphrase the
    keys of `data`. Raises `BadArchive`, `OSError`."""
    _refuse_other_format(archive.manifest)
    fresh = DataDir(folder)
    archive.extract(fresh.path, progress)
    with _read_by_this_release():
        check_fleet_file(fresh)
    sealed = None if passphrase is None else archive.sealed
    _install_keys(CurrentState(keys=key_files(data)), fresh, archive, sealed, passphrase)
    write_mark(fresh.path, Mark())
    with _read_by_this_release(), closing(open_store(fresh)) as store:
        yield store, secret_box_of(fresh)


def commit(data: DataDir, prepared: PreparedRestore, digest: str) -> CompletedRestore:
    """Make the restore happen, with a row about it in the restored audit trail. Raises `OSError`, `StoreError`.

    It is a revision of the configuration, too, with a number above those before it, here and in the archive.

    Sign-ins and the keys of their tokens aren't restored: some of them were ended after the backup. Revisions continue
    above those that were given out since, so that no client's `If-Match` matches a document that it never saw.
    """
    fresh = DataDir(data.path / atomic_swap.RESTORING / "new")
    above = max(newest_number(fresh.fleet), prepared.current.number) + RECOVERY_STEP
    start_over(fresh, [tokens.COLLECTION, signing.COLLECTION], above)
    _audit_restore(fresh, prepared, digest)
    fresh.idempotency.mkdir(mode=0o700)  # responses after the backup would be repeated for what was undone
    fresh.account_sessions.parent.mkdir(mode=0o700)  # holders who signed in with a password that is back
    _keep_initial_password(data, fresh)
    return atomic_swap.commit(data)


def _audit_restore(fresh: DataDir, prepared: PreparedRestore, digest: str) -> None:
    made, head = timestamp_text(prepared.manifest.created_at), prepared.current.audit_head
    details = {"created_at": made, "product": prepared.manifest.product, "sha256": digest, "replaced_head": head}
    with open_engine(fresh, "command_line", "restore") as engine, engine.exclusive():
        engine.trail.append("backup.restored", {"type": "backup", "id": None, "name": None}, details=details)
        engine.history.add_empty(engine.trail.stamp(), prepared.current.last_revision)


def _keep_initial_password(data: DataDir, fresh: DataDir) -> None:
    """Keep the file if its password is the restored administrator's, too: it may be the only way to sign in."""
    try:
        password = data.initial_password.read_text(encoding="utf-8").strip()
    except (FileNotFoundError, UnicodeDecodeError):
        return
    with closing(open_store(fresh)) as store:
        user = users.by_name(store, ADMINISTRATOR)
    if user is not None and check_password(password, user.password_hash):
        fresh.initial_password.touch(mode=0o600)
        fresh.initial_password.write_text(password + "\n", encoding="utf-8")


def _refuse_other_format(manifest: Manifest) -> None:
    if manifest.data_format != DATA_FORMAT:
        raise BadArchive(
            f"its data have format {manifest.data_format}, and this release reads format {DATA_FORMAT}: restore it with"
            f" {manifest.product}"
        )


def _refuse_full(data: DataDir, manifest: Manifest) -> None:
    needed, free = manifest.total + _SPARE, shutil.disk_usage(data.path).free
    if needed > free:
        raise BadArchive(
            f"it needs {size_text(needed)}, with {size_text(_SPARE)} to be left over, and {size_text(free)} are free at"
            f" {data.path}"
        )


def _refuse_mounts(data: DataDir, manifest: Manifest) -> None:
    """Refuse mount points, which can't be renamed: that would fail only after the commit."""
    for name in (*manifest.folders, data.keys.name, data.idempotency.name, data.account_sessions.parent.name, NAME):
        if os.path.ismount(data.path / name):
            raise BadArchive(
                f"{data.path / name} is a mount point, and a restore puts another folder in its place; unmount it, and"
                " move what was restored there afterwards"
            )


def _install_keys(
    now: CurrentState, fresh: DataDir, archive: OpenArchive, sealed: bytes | None, passphrase: str | None
) -> None:
    """Write the key files of the archive; if they are not used, the present ones."""
    keys = now.keys
    if sealed is not None:
        if passphrase is None:
            raise BadArchive("its keys are sealed under a passphrase, which is needed")
        keys = unseal_keys(sealed, passphrase, archive.head)
    fresh.keys.mkdir(mode=0o700)
    for name, key in keys.items():
        path = fresh.keys / Path(name).name
        path.touch(mode=0o600)
        path.write_bytes(key)


def _make_one_machine(store: FleetStore, node: str) -> None:
    """What was of a node of a fleet is of the machine then: the restored installation stands alone."""
    if writes := [*of_one_machine(store.every, store.get(NODES, node))]:
        store.commit(writes)


# --- documents and their secrets ----------------------------------------------------------------------------------


@contextmanager
def _read_by_this_release() -> Iterator[None]:
    """Errors of reading in one line, without values, which may be secrets."""
    try:
        yield
    except (StoreError, SecretBoxError, ValidationError) as error:
        text = str(error)
        if isinstance(error, ValidationError):
            first = error.errors()[0]
            text = f"{error.title}: {'.'.join(map(str, first['loc']))} {worded(first)}"
        raise BadArchive(f"its configuration can't be read by this release: {text}") from error


def remove_lost_secrets(store: Store, seal: SecretBox) -> list[LostSecret]:
    """Remove from `store` each secret that `seal` does not open, in one commit. Raises `SecretBoxError`, `StoreError`.

    Hashed secrets (passwords of users and accounts, API keys) need no key and are restored. Sealed ones, which the
    product sends to others, are lost: passwords for upstream proxies, signing secrets of webhooks and authentication
    back ends, header values of webhooks and of sources of lists and pools.
    """
    lost: list[LostSecret] = []
    writes = [write for kind in KINDS.values() for write in _without_lost(kind, store, seal, lost)]
    writes += _fetched(store, seal)
    if writes:
        store.commit(writes)
    return lost


def _without_lost(kind: Kind[Any], store: Store, seal: SecretBox, lost: list[LostSecret]) -> Iterator[Write]:
    if kind.transfer.openable is None:
        return
    for document in store.find(kind.collection):
        before = kind.model.model_validate(document.body)
        record, fields = kind.transfer.openable(before, seal)
        lost += [LostSecret(kind.collection, record.name, field) for field in fields]
        if record != before:
            yield Write(kind.collection, document.id, record.model_dump(mode="json"), document.revision)


def _fetched(store: Store, seal: SecretBox) -> Iterator[Write]:
    """Upstreams that were fetched with passwords are fetched once more."""
    for document in store.find(FETCHED_UPSTREAMS):
        record = FetchedUpstreams.model_validate(document.body)
        if any(without_lost_password(each, seal) is not each for each in record.upstreams):
            yield Write(FETCHED_UPSTREAMS, document.id, None, document.revision)


def _differences_to(data: DataDir, now: CurrentState, fresh: DataDir, with_keys: bool) -> list[BackupDifference]:
    with _read_by_this_release(), closing(open_store(fresh)) as store:
        try:
            _check_documents(store, fresh)
        except (StoreError, SecretBoxError) as error:
            if with_keys or not (isinstance(error, SecretBoxError) or isinstance(error.__cause__, SecretBoxError)):
                raise
            raise BadArchive(
                f"it was made without keys, and those in {data.keys} don't open its secrets: put the key files of the"
                " installation that it was made of there, take an archive with keys, or restore it --without-secrets"
            ) from error
        return list(differences(now, store, key_files(fresh)))


def _check_documents(store: FleetStore, fresh: DataDir) -> None:
    """Read every document and open every secret. Raises `StoreError`, `SecretBoxError`, `ValidationError`."""
    seal = secret_box_of(fresh)
    specs_of(ProxyCache(store).all(), seal)
    SettingsUpdate.model_validate(read_stored(store))
    for document in store.find("api_keys"):
        ApiKey.model_validate(document.body)
    SharedObjects(store, seal, lambda _record: "", PoolSources(store, seal), tuple).messages()
    for name, kind in KINDS.items():
        for document in store.accounts.documents(name) if name in TABLES else store.every(name):
            record = kind.model.model_validate(document.body)
            openable, known = kind.transfer.openable, getattr(record, kind.transfer.identity)
            for lost in () if openable is None else openable(record, seal)[1]:
                raise SecretBoxError(f"{lost} of the {kind.name} {known!r} can't be opened")


def _check_audit(fresh: DataDir) -> None:
    try:
        found = verify(fresh)
    except StoreError as error:
        raise BadArchive(f"its audit trail can't be read: {error}") from error
    if isinstance(found, Broken):
        raise BadArchive(f"its audit trail is broken: row {found.seq} {found.error}")
