"""Key files: random bytes made once, 0600, in the folder `keys` of the data directory."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from api.store.contract import StoreDamaged, StoreWriteError
from api.store.storage import sync_folder
from config.paths import DataDir, private_directory

KEY_BYTES = 32


def signing_key(data: DataDir) -> bytes:
    """The key that access tokens are signed with, made at first use.

    Raises `StoreDamaged` when the file is not a key, `StoreWriteError` when it can't be made.
    """
    path = data.keys / "access-tokens.key"
    try:
        private_directory(data.keys)
        if not path.exists():
            _make(path)
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error
    except ValueError as error:
        raise StoreDamaged(f"{path}: not a key file") from error
    if len(key) != KEY_BYTES:
        raise StoreDamaged(f"{path}: {len(key)} bytes instead of {KEY_BYTES}")
    return key


def _make(path: Path) -> None:
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(secrets.token_hex(KEY_BYTES) + "\n")
        file.flush()
        os.fsync(descriptor)
    fresh.rename(path)
    sync_folder(path.parent)
