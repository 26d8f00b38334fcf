"""Secrets that must be sent again, such as the passwords of upstream proxies, encrypted for the disk.

AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits for each secret and the key of a file that is made at the
first start. What a secret is for is authenticated with it, so that one can't be put in the place of another. In the
store it is the text

    sealed:1:KEY:DATA

where KEY is a fingerprint of the key (from its SHA-256; so a wrong key is reported as such) and DATA the nonce and the
ciphertext in base64url. Without the key file the secrets of a copied store can't be read; keep the two apart in
backups, and keep both.

Secrets that systemd gives to the service (LoadCredential=, systemd.exec(5)): files that only the service can read. They
lie in `$CREDENTIALS_DIRECTORY`, in memory that is never swapped out, and are gone with the service. So they are in no
environment, which children inherit, and in no file of the data directory. An empty one counts as not given: that is how
a unit says that a credential may be missing (`SetCredential=`).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config import OperatorError
from config.files.durable import KeyFileError, make_key, read_key
from config.files.paths import DataDir, PathError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

AS_KEYS = {
    "admin-password": ("admin_password",),
    "prometheus-token": ("metrics", "prometheus_token"),
    "oauth2-client-secret": ("auth", "oauth2", "client_secret"),
}
"""Credentials that stand for a key of the configuration."""

SECRETS_KEY = "secrets-key"
"""The key of sealed secrets, as hex digits."""


class CredentialError(OperatorError):
    """A credential can't be read; the text says which and why."""


def credential(name: str) -> Path | None:
    """The file of a credential; None when it was not given, or is empty. Raises `CredentialError`."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        return None
    path = Path(folder) / name
    return path if _text(path) else None


def as_settings() -> dict[str, Any]:
    """The credentials that stand for keys of the configuration, as it is nested. Raises `CredentialError`."""
    nested: dict[str, Any] = {}
    for name, keys in AS_KEYS.items():
        path = credential(name)
        if path is not None:
            group = nested
            for key in keys[:-1]:
                group = group.setdefault(key, {})
            group[keys[-1]] = _text(path)
    return nested


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialError(f"the credential {path.name} can't be read: {error}") from error


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

    def exported(self) -> str:
        """The key itself as hex digits, for another node of the same fleet. Raises `SecretBoxError`."""
        return self._known(make=True).hex()

    @property
    def fingerprint(self) -> str:
        """Eight hex digits that stand for the key. Raises `SecretBoxError`."""
        return _mark(self._known(make=True))

    def seal(self, secret: str, purpose: str) -> str:
        """The text to store. Raises `SecretBoxError`."""
        key = self._known(make=True)
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + _cipher(key).encrypt(nonce, secret.encode(), purpose.encode())
        return f"{_PREFIX}{_mark(key)}:{base64.urlsafe_b64encode(data).decode('ascii')}"

    def reseal(self, before: str | None, secret: str, purpose: str) -> str:
        """The text to store in place of `before`, which stays if it holds this secret: no change is seen then.

        Raises `SecretBoxError`.
        """
        return before if before and self.open(before, purpose) == secret else self.seal(secret, purpose)

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

    def opens(self, sealed: str, purpose: str) -> bool:
        """Whether `open` would open it."""
        try:
            self.open(sealed, purpose)
        except SecretBoxError:
            return False
        return True

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
    return SecretBox(seal_file(data))


def seal_file(data: DataDir) -> Path:
    """The file of the key that seals secrets, whether it is made or not. Raises `SecretBoxError`."""
    try:
        return credential(SECRETS_KEY) or data.keys / "secrets.key"
    except CredentialError as error:
        raise SecretBoxError(str(error)) from error


def _mark(key: bytes) -> str:
    return hashlib.sha256(b"mark" + key).hexdigest()[:8]


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as above

    return AESGCM(key)
