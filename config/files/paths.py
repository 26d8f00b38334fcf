"""Where the files and sockets of one installation lie.

The data directory outlives the product, the run directory does not. Both are private (0700), and every file in
them is 0600: that is the only protection that the local sockets have, and the only one they need.

Every forwarding actor calls this. Here `os` stands in for `pathlib`, whose reading and searching would cost each of
them half a megabyte of codecs, buffers and patterns.

One instance per directory: a lock file that holds the process id of its owner.

The lock is `flock`'s, so it is gone with its last holder, however that ended. The supervisor lets its actors inherit
the descriptor: when it is killed, the next start waits for the last orphan, and two processes never write the same
store.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config import OperatorError

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
"""A text that is another one after each boot (random(4)); of the host in a container."""

_LONGEST_ID = 64


def boot_id() -> bytes | None:
    """The id of this boot; None where a sandbox hides it."""
    try:
        descriptor = os.open(BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return os.read(descriptor, _LONGEST_ID).strip() or None
    except OSError:
        return None
    finally:
        os.close(descriptor)


IPC_PATH_MAX = 107
"""Bytes that a Unix socket path may have on Linux (`unix(7)`: 108 with the terminating NUL)."""

SERVICE_DATA_DIR = Path("/var/lib/proxyfleet")
SYSTEM_RUN = Path("/run")

_LONGEST_SESSION_DIR = 64
_LONGEST_SOCKET_NAME = len("/events.out")


class PathError(OperatorError):
    """A directory can't be used; the text says which one and why."""


class _Below:
    """Of a directory: a path below its own."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, directory: Any, _class: object = None) -> Path:
        return Path(directory.path, self._name)


class _Socket(_Below):
    """Of a run directory: the address of a socket of the bus."""

    __slots__ = ()

    def __get__(self, directory: Any, _class: object = None) -> str:  # type: ignore[override]
        return f"ipc://{directory.path}/{self._name}"


@dataclass(frozen=True, slots=True)
class RunDir:
    """The run directory: sockets of the bus and the lock files. Its path is kept short enough for `ipc://`."""

    path: Path

    mailbox = _Socket("mailbox")
    """ROUTER of the mailbox, bound by the supervisor."""
    events_in = _Socket("events.in")
    """XSUB where publishers connect, bound by the supervisor."""
    events_out = _Socket("events.out")
    """XPUB where subscribers connect, bound by the supervisor."""
    records = _Socket("records")
    """ROUTER of the records plane, bound by the log indexer."""
    api_inner = _Below("api.sock")
    """Unix socket where the API takes what the TLS terminator has decrypted, bound by the supervisor."""
    resolver = _Below("resolver")
    """Unix socket of the resolver, by which actors ask it for names (`actors.net.resolver_protocol`)."""
    proxy_resolver = _Below("resolver.own")
    """As `resolver`, of the one that asks the name servers which proxies name themselves."""
    pools = _Below("pools")
    """The folder of what is known of pools' upstreams, a file for each pool (`actors.pools.state`)."""
    state = _Below("state")
    """The folder of what processes count together (`actors.state`)."""
    clients = _Below("clients")
    """The file of the client addresses from which accounts are in use (`actors.state.account_clients`)."""
    lock = _Below("lock")
    """Locked by the supervisor for as long as it lives."""


@dataclass(frozen=True, slots=True)
class DataDir:
    """The data directory: everything that must outlive the product."""

    path: Path

    fleet = _Below("fleet.sqlite")
    """The file of the configuration, the accounts, their history and the audit trail (`api.store`)."""
    unsettled = _Below("unsettled.json")
    """What is not settled yet with the ledger of a fleet (`api.engine.ledger`)."""
    cluster = _Below("cluster")
    """The folder of what a node of a fleet has for itself (`actors.cluster`)."""
    joining = _Below("cluster/joining.json")
    """What an installation that has joined a fleet was given, until it is a node of it (`api.cluster.joining`)."""
    founding = _Below("cluster/founding.json")
    """The id of the fleet that this installation is about to become, until it is a node of it."""
    node = _Below("cluster/node.json")
    """What makes this installation a node of a fleet; there is none without one."""
    level = _Below("cluster/level")
    """The level of the program that has read the fleet's ledger here; without it that is the first one."""
    keys = _Below("keys")
    """The folder of key files: of sealed secrets and of live metrics."""
    curve_key = _Below("keys/metrics-curve.key")
    """The secret key of the public socket, the metrics collector's."""
    logs = _Below("logs")
    """The folder of the log indexer's day files."""
    account_sessions = _Below("sessions/accounts.sqlite")
    """The file of the sign-ins of account holders."""
    idempotency = _Below("idempotency")
    """The folder of the responses that are kept for repeated requests (`Idempotency-Key`)."""
    metrics = _Below("metrics")
    """The folder of the metrics collector."""
    usage = _Below("metrics/usage.sqlite")
    """What accounts have used: the metrics collector writes it, and the API reads it."""
    webhooks = _Below("webhooks")
    """The folder of the webhook sender's outbox."""
    lists = _Below("lists")
    """The folder of the compiled lists of destinations (`actors.lists`)."""
    telemetry = _Below("telemetry")
    """The folder of what the push to an OpenTelemetry collector remembers."""
    temporary = _Below("temporary")
    """The folder of large bodies of requests and responses, while the API has them. Emptied at its start."""
    lock = _Below("lock")
    """Locked by the process that may write here: the running product, or one offline command."""
    initial_password = _Below("initial-admin-password")
    """Where the password of the first administrator is written."""


def forget_initial_password(data: DataDir) -> None:
    """Delete the file with the first administrator's password, which has changed."""
    data.initial_password.unlink(missing_ok=True)


def private_directory(path: Path) -> Path:
    """Make `path` (and its parents) if need be and give it mode 0700.

    Raises `PathError` when that is impossible, and when the directory belongs to another user or is meant to be shared
    (sticky, as /tmp): that would not be private, or not for long.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = path.stat()
        if found.st_uid != os.geteuid():
            raise PathError(f"{path}: belongs to user {found.st_uid}, not to us")
        if found.st_mode & stat.S_ISVTX and any(path.iterdir()):  # a fresh tmpfs is sticky, but empty
            raise PathError(f"{path}: is a shared directory; give one of the service's own")
        path.chmod(0o700)
    except OSError as error:
        raise PathError(f"{path}: {error.strerror or error}") from error
    return path


def unwritable(path: Path) -> str | None:
    """Why nothing can be written in a directory of ours, as a sentence; None also if it isn't ours or doesn't exist."""
    if path.is_dir() and path.stat().st_uid == os.geteuid() and not os.access(path, os.W_OK | os.X_OK):
        return f"{path}: can't be written; is its file system read-only?"
    return None


def default_data_dir() -> Path:
    """`data` beside the source in a checkout, else `/var/lib/proxyfleet`.

    For a user who isn't root and where there is no such service it is `proxyfleet` in `$XDG_DATA_HOME`, or
    `~/.local/share/proxyfleet`.
    """
    checkout = Path(__file__).resolve().parents[2]
    if (checkout / "pyproject.toml").is_file():
        return checkout / "data"
    if os.geteuid() == 0 or os.path.lexists(SERVICE_DATA_DIR):
        return SERVICE_DATA_DIR
    given = Path(os.environ.get("XDG_DATA_HOME", ""))
    return (given if given.is_absolute() else Path.home() / ".local" / "share") / "proxyfleet"


def default_run_dir(data: Path, make: bool = False) -> Path:
    """Where the run directory of this data directory is, with a short path, unless the settings name one.

    `$RUNTIME_DIRECTORY` (systemd's); else one of this data directory alone: below /run for root, below
    `$XDG_RUNTIME_DIR` where there is a session, or where the link `run` in the data directory leads to. That is a
    directory below /tmp with a name that is made up anew, so that no other user can take it first; with `make` it is
    made if need be. Raises `PathError` when it can't be.
    """
    given = os.environ.get("RUNTIME_DIRECTORY", "").partition(":")[0]
    if given:
        return Path(given)
    mark = hashlib.sha256(os.fsencode(data.absolute())).hexdigest()[:10]
    if os.geteuid() == 0 and os.access(SYSTEM_RUN, os.W_OK):  # it may be read-only in a container
        return SYSTEM_RUN / f"proxyfleet-{mark}"
    session = os.environ.get("XDG_RUNTIME_DIR", "")
    if session and Path(session).is_dir() and len(os.fsencode(session)) < _LONGEST_SESSION_DIR:
        return Path(session) / f"proxyfleet-{mark}"
    link = data.absolute() / "run"
    found = _ours(link)
    if found is None and make:
        found = _linked(link)
    return found or link


def _ours(link: Path) -> Path | None:
    """The directory that the link leads to, if it is there and our own."""
    try:
        target = Path(os.readlink(link))
        found = target.lstat()
    except OSError:
        return None
    return target if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() else None


def _linked(link: Path) -> Path:
    """A new directory to which the link leads."""
    fresh = link.with_name(".run")
    try:
        made = Path(tempfile.mkdtemp(prefix="proxyfleet-"))
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(made)
        fresh.replace(link)
    except OSError as error:
        raise PathError(f"{link}: {error.strerror or error}") from error
    return made


def open_run_dir(path: Path) -> RunDir:
    """Make the run directory.

    Raises `PathError` when it can't be made or when its path is too long for the sockets in it.
    """
    absolute = path.absolute()
    length = len(os.fsencode(absolute)) + _LONGEST_SOCKET_NAME
    if length > IPC_PATH_MAX:
        raise PathError(f"{absolute}: the path is too long for sockets ({length} bytes of {IPC_PATH_MAX} allowed)")
    return RunDir(private_directory(absolute))


def open_data_dir(path: Path) -> DataDir:
    """Make the data directory. Raises `PathError` when it can't be made."""
    return DataDir(private_directory(path.absolute()))


ORPHANS_END_WITHIN = 5.0


class LockedError(OperatorError):
    """Another process has the directory; the text names it."""


def lock(file: Path, what: str, patience: float = ORPHANS_END_WITHIN) -> int:
    """Acquire the lock and return its descriptor, to be kept open for as long as the lock is needed.

    Raises `LockedError` at once when its owner lives, and after `patience` seconds when only the owner's orphans do.
    """
    deadline = time.monotonic() + patience
    while (descriptor := _acquired(file, what, deadline)) is None:
        continue  # its last owner removed it, and this was that one
    owner = f"{os.getpid()}\n"
    os.pwrite(descriptor, owner.encode(), 0)  # over the older one: on a full disk there is room for no other
    os.ftruncate(descriptor, len(owner))
    return descriptor


def _acquired(file: Path, what: str, deadline: float) -> int | None:
    """The lock on `file`; None when that has been removed meanwhile. Raises `LockedError`."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    while not _try(descriptor):
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        if _lives(owner) or time.monotonic() > deadline:
            os.close(descriptor)
            raise LockedError(f"{what} {file.parent} is in use by process {owner or 'unknown'}")
        time.sleep(0.02)
    if os.fstat(descriptor).st_nlink:
        return descriptor
    os.close(descriptor)
    return None


def holder(file: Path) -> int | None:
    """The process that holds the lock now; None without one, and without permission to read the file."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        owner = os.pread(descriptor, 32, 0).decode(errors="replace").strip()
        return int(owner) if not _try(descriptor) and _lives(owner) else None
    finally:
        os.close(descriptor)


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _lives(owner: str) -> bool:
    """True if the process lives; a zombie doesn't."""
    if not owner.isascii() or not owner.isdigit():
        return False
    try:
        status = Path(f"/proc/{owner}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")
