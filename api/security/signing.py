"""The keys of access tokens: one that signs, and older ones that still verify for a while.

`keys/access-tokens.key` signs. A rotation first notes it in `keys/access-tokens.older` with the moment at which its
last token ends, then puts a new one in its place; so a crash between the two loses no token. (When a key was
compromised, nothing is noted, and tokens of all older keys end at once.) A token names its key (`kid`, RFC 7515,
section 4.1.4); tokens without that are tried with every key.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from api.store.interface import StoreDamaged, StoreWriteError
from config.files.durable import KeyFileError, make_key, read_key, replace_file
from config.files.paths import DataDir, PathError


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key. `until` is Unix seconds; None for the one that signs."""

    id: str
    secret: bytes = field(repr=False)
    until: float | None = None


class SigningKeys:
    """All keys of a data directory. Thread-safe. Raises `StoreError` for files that can't be read or written."""

    def __init__(self, data: DataDir, clock: Callable[[], float] = time.time) -> None:
        self._data = data
        self._clock = clock
        self._lock = threading.Lock()
        self._older_file = data.keys / "access-tokens.older"
        self._keys = self._read()

    @property
    def current(self) -> SigningKey:
        """The key that signs."""
        return self._keys[0]

    def believed(self, key_id: str | None) -> list[SigningKey]:
        """The keys that a token may be signed with: the one of this id, or all of them when it names none."""
        now = self._clock()
        living = [key for key in self._keys if key.until is None or key.until > now]
        return [key for key in living if key_id in (None, key.id)]

    def rotate(self, last_token_ends: float | None) -> SigningKey:
        """Sign with a new key, which is returned; the previous one verifies until `last_token_ends` (Unix seconds).

        None: neither that one nor any older one verifies any more.
        """
        with self._lock:
            now = self._clock()
            older = [key for key in self._keys[1:] if key.until is not None and key.until > now]
            retired = SigningKey(self.current.id, self.current.secret, last_token_ends)
            try:
                _write(self._older_file, [] if last_token_ends is None else [*older, retired])
                make_key(self._data.keys / "access-tokens.key")
            except (OSError, PathError) as error:
                raise StoreWriteError(f"{self._data.keys}: {error}") from error
            self._keys = self._read()
            return self.current

    def _read(self) -> tuple[SigningKey, ...]:
        current = _key(_current_secret(self._data))
        return current, *(key for key in self._older() if key.id != current.id)

    def _older(self) -> list[SigningKey]:
        try:
            entries = json.loads(self._older_file.read_text(encoding="ascii"))
            return [_key(bytes.fromhex(each["secret"]), float(each["until"])) for each in entries]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StoreWriteError(f"{self._older_file}: {error.strerror or error}") from error
        except (ValueError, KeyError, TypeError) as error:
            raise StoreDamaged(f"{self._older_file}: not a list of older keys") from error


def _current_secret(data: DataDir) -> bytes:
    """The secret of the key that signs, made at first use."""
    path = data.keys / "access-tokens.key"
    try:
        if not path.exists():
            make_key(path)
        return read_key(path)
    except OSError as error:
        raise StoreWriteError(f"{path}: {error.strerror or error}") from error
    except KeyFileError as error:
        raise StoreDamaged(str(error)) from error


def _key(secret: bytes, until: float | None = None) -> SigningKey:
    return SigningKey(hashlib.sha256(b"access token key\n" + secret).hexdigest()[:12], secret, until)


def _write(path: Path, keys: list[SigningKey]) -> None:
    replace_file(path, json.dumps([{"secret": key.secret.hex(), "until": key.until} for key in keys]).encode())
