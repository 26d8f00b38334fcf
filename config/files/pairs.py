"""Certificates with their keys that the product keeps for proxies: two files each among its key files, 0600.

The name of a pair follows from its content: the same one is stored once, and what a proxy serves is never written over.
"""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from config.files.certificates import CertificateError, ends_at, server_context
from config.files.durable import sync, write_synced
from config.files.paths import private_directory
from config.text.formatting import timestamp_text

ROOM = 2**18
"""Bytes of all pairs together: a backup seals them in one piece."""
SETTLED = 3600.0
"""Seconds after which a pair that nothing names is not one that a proxy is just about to name."""
_NAME = re.compile("tls-[0-9a-f]{16}")
_ONE_AT_A_TIME = threading.Lock()


class NoRoom(Exception):
    """There are too many pairs that are named."""


class Pair(NamedTuple):
    """Both in PEM."""

    certificate: bytes
    key: bytes

    @property
    def name(self) -> str:
        """Of its files."""
        return f"tls-{hashlib.sha256(self.certificate + self.key).hexdigest()[:16]}"


def files_of(folder: Path, name: str) -> tuple[Path, Path]:
    """Where the pair of this name has its certificate and its key."""
    return folder / f"{name}.crt", folder / f"{name}.key"


def pair_named_by(cert_file: str) -> str | None:
    """The name of the pair that this is the certificate of, in whatever folder; None for other files."""
    path = Path(cert_file)
    return path.stem if path.suffix == ".crt" and _NAME.fullmatch(path.stem) else None


def read_pair(folder: Path, name: str) -> Pair | None:
    """The pair of this name; None when it's not there, or damaged."""
    if _NAME.fullmatch(name) is None:
        return None
    try:
        certificate, key = (each.read_bytes() for each in files_of(folder, name))
    except OSError:
        return None
    found = Pair(certificate, key)
    return found if found.name == name else None


def keep_pair(folder: Path, pair: Pair, used: Callable[[], Collection[str]]) -> tuple[Path, Path]:
    """The files of the pair, which a server can use. Where there is no room, those go that are not `used`, by path.

    Raises `CertificateError`, `NoRoom` and `OSError`, and has left nothing then.
    """
    files = files_of(folder, pair.name)
    with _ONE_AT_A_TIME:
        private_directory(folder)
        if read_pair(folder, pair.name) is not None:
            _check(*files)
            return files
        _make_room(folder, len(pair.certificate) + len(pair.key), used)
        with ExitStack() as undone:
            for path, content in zip(files, pair, strict=True):
                undone.callback(path.unlink, missing_ok=True)
                write_synced(path, content)
            _check(*files)
            undone.pop_all()
        sync(folder)
    return files


def _check(certificate: Path, key: Path) -> None:
    server_context(certificate, key)
    ends = ends_at(certificate)
    if ends <= time.time():
        raise CertificateError("cert_file", f"ended at {timestamp_text(ends)}")


def _make_room(folder: Path, wanted: int, used: Callable[[], Collection[str]]) -> None:
    """Remove pairs that are not used if there is no room for so many bytes."""
    sizes = {path: path.stat().st_size for path in sorted(folder.glob("tls-*"))}
    if sum(sizes.values()) + wanted <= ROOM:
        return
    kept, settled = used(), time.time() - SETTLED
    for path in [each for each in sizes if str(each.with_suffix(".crt")) not in kept]:
        if path.stat().st_mtime < settled:
            path.unlink(missing_ok=True)
            del sizes[path]
    if sum(sizes.values()) + wanted > ROOM:
        raise NoRoom
