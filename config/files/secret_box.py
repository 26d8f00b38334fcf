"""Secrets that must be sent again, such as the passwords of upstream proxies, encrypted for the disk.

AES-256-GCM (NIST SP 800-38D) with a random nonce of 96 bits for each secret and the key of a file that is made at the
first start. What a secret is for is authenticated with it, so that one can't be put in the place of another. In the
store it is the text

    sealed:1:KEY:DATA

where KEY is a mark of the key (from its SHA-256; so a wrong key is reported as such) and DATA the nonce and the
ciphertext in base64url. Without the key file the secrets of a copied store can't be read; keep the two apart in
backups, and keep both.

While the key is replaced (`api.cluster.keys`), the file has several, one after the other: the first one seals, and
each opens what has its mark. Other processes have the new content at their next use of it.

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
import re
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from config import OperatorError
from config.files.durable import KEY_BYTES, KeyFileError, make_key, read_keys, replace_file
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
_MARK = re.compile(re.escape(_PREFIX) + "([0-9a-f]{8}):")


class SealedFor(StrEnum):
    """What secrets are sealed for, never changed: one that is sealed for one of these opens for no other."""

    UPSTREAM = "the password of a parent proxy"
    BACKEND = "authentication back end"
    WEBHOOK = "webhook secret"
    HEADER = "webhook header"
    SIGNING_KEY = "access token key"
    HISTORY = "a hash in a revision"
    DSN = "cluster dsn"
    FLEET_KEY = "fleet key"
    MOVE = "cluster move"
    RESPONSE = "idempotency"
    """Each for the mark of its request."""


class SecretBoxError(OperatorError):
    """A secret can't be sealed or opened. The text names the key file and never the secret."""


@contextmanager
def sealing_as(kind: type[Exception]) -> Iterator[None]:
    """Raise an error of this kind with the text of a `SecretBoxError`."""
    try:
        yield
    except SecretBoxError as error:
        raise kind(str(error)) from error


class SecretBox:
    """Seals and opens with the keys of one file, read at the first use and when it has changed. Thread-safe."""

    def __init__(self, path: Path, is_given: bool = False) -> None:
        """With `is_given` the file is given from outside, and is not to be changed."""
        self.path = path
        self.is_given = is_given
        self._keys: Mapping[str, bytes] = {}
        self._read_of: tuple[int, ...] = ()
        self._lock, self._changing = threading.Lock(), threading.Lock()

    def ensure(self) -> None:
        """Make the key file unless there is one. Raises `SecretBoxError` when that fails, or when it holds no key."""
        self._known(make=True)

    @property
    def is_made(self) -> bool:
        """Whether there is a key file."""
        return self.path.exists()

    def exported(self) -> str:
        """The keys as hex digits, for another node of the same fleet. Raises `SecretBoxError`."""
        return b"".join(self._known(make=True).values()).hex()

    @property
    def fingerprint(self) -> str:
        """The mark of the key that seals, eight hex digits. Raises `SecretBoxError`."""
        return next(iter(self._known(make=True)))

    @property
    def marks(self) -> list[str]:
        """Those of all keys, that of the one that seals first. Raises `SecretBoxError`."""
        return [*self._known(make=False)]

    def seal(self, secret: str, purpose: SealedFor, of: str = "", mark: str = "") -> str:
        """The text to store. `mark` is that of a key that shall be used in place of the first.

        Raises `SecretBoxError`.
        """
        keys = self._known(make=True)
        mark = mark or next(iter(keys))
        nonce = os.urandom(NONCE_BYTES)
        data = nonce + _cipher(keys[mark]).encrypt(nonce, secret.encode(), _bound(purpose, of))
        return f"{_PREFIX}{mark}:{base64.urlsafe_b64encode(data).decode('ascii')}"

    def reseal(self, before: str | None, secret: str, purpose: SealedFor) -> str:
        """The text to store in place of `before`, which stays if it holds this secret: no change is seen then.

        Raises `SecretBoxError`.
        """
        return before if before and self.open(before, purpose) == secret else self.seal(secret, purpose)

    def open(self, sealed: str, purpose: SealedFor, of: str = "") -> str:
        """The secret that was sealed for the same purpose. Raises `SecretBoxError`."""
        from cryptography.exceptions import InvalidTag  # loaded only by processes that open secrets

        mark, data = self._parts(sealed)
        keys = self._known(make=False)
        if mark not in keys:
            raise SecretBoxError(
                f"{self.path}: a secret was sealed with another key ({mark}, this one is {next(iter(keys))})"
            )
        try:
            return _cipher(keys[mark]).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _bound(purpose, of)).decode()
        except InvalidTag as error:
            raise SecretBoxError(
                f"{self.path}: a sealed secret is damaged, or was sealed for something else"
            ) from error

    def opens(self, sealed: str, purpose: SealedFor) -> bool:
        """Whether `open` would open it."""
        try:
            self.open(sealed, purpose)
        except SecretBoxError:
            return False
        return True

    # --- replacing the key ---

    def sealed_anew(self, sealed: str, mark: str) -> str:
        """The same secret for the same purpose, whatever that is, sealed with the key of this mark.

        Raises `SecretBoxError` when it can't be opened.
        """
        for purpose in SealedFor:
            if self.opens(sealed, purpose):
                return self.seal(self.open(sealed, purpose), purpose, mark=mark)
        raise SecretBoxError(f"{self.path}: a sealed secret is damaged, or its key is missing")

    def add(self, keys: str) -> None:
        """Have these keys (hex digits), too, durably. Raises `SecretBoxError`, as the others here."""
        try:
            found = bytes.fromhex(keys)
        except ValueError:
            found = b""
        if not found or len(found) % KEY_BYTES:
            raise SecretBoxError("this is no key")
        fresh = {_mark(each): each for each in _divided(found)}
        self._change(lambda known: {**known, **fresh})

    def use(self, mark: str) -> None:
        """Seal with the key of this mark, which is there, from now on."""
        self._change(lambda known: {mark: known[mark]} | {each: key for each, key in known.items() if each != mark})

    def forget(self, marks: Collection[str]) -> None:
        """Have the keys of these marks no longer; but the one that seals stays."""
        first = self.marks[0]
        self._change(lambda known: {each: key for each, key in known.items() if each not in marks or each == first})

    def _change(self, change: Callable[[Mapping[str, bytes]], Mapping[str, bytes]]) -> None:
        with self._changing:
            known = self._known(make=False)
            if [*(keys := change(known))] == [*known]:
                return
            if self.is_given:
                raise SecretBoxError(f"{self.path} is given from outside, and is not to be changed here")
            try:
                replace_file(self.path, "".join(f"{each.hex()}\n" for each in keys.values()).encode())
            except OSError as error:
                raise SecretBoxError(f"{self.path}: {error.strerror or error}") from error

    def _known(self, make: bool) -> Mapping[str, bytes]:
        """The keys by their marks, as the file has them now; those that were read when it is gone."""
        with self._lock:
            found = self._state()
            if not self._keys or found not in ((), self._read_of):
                self._keys = {_mark(each): each for each in self._read(make)}
                self._read_of = self._state()
            return self._keys

    def _state(self) -> tuple[int, ...]:
        """Another one when the file is another one."""
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size

    def _read(self, make: bool) -> list[bytes]:
        try:
            if make and not self.path.exists():
                make_key(self.path)
            return _divided(read_keys(self.path))
        except FileNotFoundError as error:
            raise SecretBoxError(f"{self.path}: missing, and there are secrets sealed with it; put it back") from error
        except (OSError, PathError, KeyFileError) as error:
            raise SecretBoxError(str(error)) from error

    def _parts(self, sealed: str) -> tuple[str, bytes]:
        mark, colon, data = sealed.removeprefix(_PREFIX).partition(":")
        try:
            decoded = base64.b64decode(data, altchars=b"-_", validate=True)
        except binascii.Error:
            decoded = b""
        if not sealed.startswith(_PREFIX) or not colon or len(decoded) <= NONCE_BYTES:
            raise SecretBoxError(f"{self.path}: a sealed secret is malformed")
        return mark, decoded

    def __repr__(self) -> str:
        return f"<SecretBox with {self.path}>"


def secret_box_of(data: DataDir) -> SecretBox:
    """The seal of a data directory: with the key that systemd has given, else with one of its own."""
    file = seal_file(data)
    return SecretBox(file, is_given=file.parent != data.keys)


def seal_file(data: DataDir) -> Path:
    """The file of the key that seals secrets, whether it is made or not. Raises `SecretBoxError`."""
    try:
        return credential(SECRETS_KEY) or data.keys / "secrets.key"
    except CredentialError as error:
        raise SecretBoxError(str(error)) from error


def new_key() -> str:
    """One as hex digits."""
    return secrets.token_hex(KEY_BYTES)


def mark_of(key: str) -> str:
    """The mark of a key that is given as hex digits."""
    return _mark(bytes.fromhex(key))


def marks_in(text: str) -> set[str]:
    """The marks of all keys with which something in this text is sealed."""
    return {*_MARK.findall(text)} if _PREFIX in text else set()


def _bound(purpose: SealedFor, of: str) -> bytes:
    return f"{purpose} {of}".encode() if of else purpose.encode()


def _divided(keys: bytes) -> list[bytes]:
    return [keys[start : start + KEY_BYTES] for start in range(0, len(keys), KEY_BYTES)]


def _mark(key: bytes) -> str:
    return hashlib.sha256(b"mark" + key).hexdigest()[:8]


def _cipher(key: bytes) -> AESGCM:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # as above

    return AESGCM(key)
