"""The key that access tokens are signed with."""

from __future__ import annotations

from api.store.interface import StoreDamaged, StoreWriteError
from config.files.keyfile import KeyFileError, make_key, read_key
from config.files.paths import DataDir


def signing_key(data: DataDir) -> bytes:
    """The key that access tokens are signed with, made at first use.

    Raises `StoreDamaged` when the file is not a key, `StoreWriteError` when it can't be made.
    """
    path = data.keys / "access-tokens.key"
    try:
        if not path.exists():
            make_key(path)
        return read_key(path)
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error
    except KeyFileError as error:
        raise StoreDamaged(str(error)) from error
