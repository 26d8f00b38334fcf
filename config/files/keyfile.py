"""Key files: random bytes made once, mode 0600, in the folder `keys` of the data directory."""

from __future__ import annotations

import secrets
from pathlib import Path

from config.files.durable import replace_file
from config.files.paths import private_directory

KEY_BYTES = 32


class KeyFileError(Exception):
    """There is no key in this file; the text says which file and why."""


def read_key(path: Path) -> bytes:
    """The key in `path`. Raises `KeyFileError` when it isn't one, `OSError` when it can't be read."""
    try:
        key = bytes.fromhex(path.read_text(encoding="ascii").strip())
    except ValueError as error:
        raise KeyFileError(f"{path}: not a key file") from error
    if len(key) != KEY_BYTES:
        raise KeyFileError(f"{path}: {len(key)} bytes instead of {KEY_BYTES}")
    return key


def make_key(path: Path) -> None:
    """A new key, on disk when this returns. Raises `OSError`, `PathError`."""
    private_directory(path.parent)
    replace_file(path, f"{secrets.token_hex(KEY_BYTES)}\n".encode())
