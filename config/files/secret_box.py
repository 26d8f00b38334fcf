"""Secrets that must be sent again, such as the passwords of upstream proxies, encrypted for the disk.

AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits for each secret and the key of a file that is made at the
first start. What a secret is for is authenticated with it, so that one can't be put in the place of another. In the
store it is the text

    sealed:1:KEY:DATA

where KEY is a fingerprint of the key (from its SHA-256; so a wrong key is reported as such) and DATA the nonce and the
ciphertext in base64url. Without the key file the secrets of a copied store can't be read; keep the two apart in
backups, and keep both.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from config.files.credentials import SECRETS_KEY, CredentialError, credential
from config.files.keyfile import KeyFileError, make_key, read_key
from config.files.paths import DataDir, PathError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12
_PREFIX = "sealed:1:"


class SecretBoxError(Exception):
    """A secret can't be sealed or opened. The text names the key file and never the secret."""


class SecretBox:
    """Seals and opens with the key of one file, which is read at the first use. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._key: bytes | None = None
        self._lock = threading.Lock()

    def ensure(self) -> None:
        """Make the key file unless there is one. Raises `SecretBoxError` when that fails, or when it holds no key."""
        self._known(make=True)

    @property
    def is_made(self) -> bool:
        """Whether there is a key file."""
        return self._path.exists()

    def seal(self, secret: str, purpose: str) -> str:
        """The text to store. Raises `SecretBoxError`."""
        key = self._known(make=True)
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + _cipher(key).encrypt(nonce, secret.encode(), purpose.encode())
        return f"{_PREFIX}{_mark(key)}:{base64.urlsafe_b64encode(data).decode('ascii')}"

    def open(self, sealed: str, purpose: str) -> str:
        """The secret that was sealed for the same purpose. Raises `SecretBoxError`."""
        from cryptography.exceptions import InvalidTag  # loaded only by processes that open secrets

        mark, data = self._parts(sealed)
        key = self._known(make=False)
        if mark != _mark(key):
            raise SecretBoxError(
                f"{self._path}: a secret was sealed with another key ({mark}, this one is {_mark(key)})"
            )
        try:
            return _cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], purpose.encode()).decode()
        except InvalidTag as error:
            raise SecretBoxError(
                f"{self._path}: a sealed secret is damaged, or was sealed for something else"
            ) from error

    def _known(self, make: bool) -> bytes:
        with self._lock:
            if self._key is None:
                self._key = self._read(make)
            return self._key

    def _read(self, make: bool) -> bytes:
        try:
            if make and not self._path.exists():
                make_key(self._path)
            return read_key(self._path)
        except FileNotFoundError as error:
            raise SecretBoxError(f"{self._path}: missing, and there are secrets sealed with it; put it back") from error
        except (OSError, PathError, KeyFileError) as error:
            raise SecretBoxError(str(error)) from error

    def _parts(self, sealed: str) -> tuple[str, bytes]:
        mark, colon, data = sealed.removeprefix(_PREFIX).partition(":")
        try:
            decoded = base64.b64decode(data, altchars=b"-_", validate=True)
        except binascii.Error:
            decoded = b""
        if not sealed.startswith(_PREFIX) or not colon or len(decoded) <= NONCE_BYTES:
            raise SecretBoxError(f"{self._path}: a sealed secret is malformed")
        return mark, decoded

    def __repr__(self) -> str:
        return f"<SecretBox with {self._path}>"


def secret_box_of(data: DataDir) -> SecretBox:
    """The seal of a data directory: with the key that systemd has given, else with one of its own."""
    try:
        return SecretBox(credential(SECRETS_KEY) or data.keys / "secrets.key")
    except CredentialError as error:
        raise SecretBoxError(str(error)) from error


def _mark(key: bytes) -> str:
    return hashlib.sha256(b"mark" + key).hexdigest()[:8]


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as above

    return AESGCM(key)
