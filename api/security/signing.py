"""The keys of access tokens: one that signs, and older ones that still verify for a while.

They are one document of the store, each sealed (`config.files.secret_box`), the one that signs first. A rotation puts a
new one before them and gives the previous one the moment at which its last token ends; so a crash loses no token, and
every reader of the store has the new key from that commit on. (When a key was compromised, nothing else stays, and
tokens of all older keys end at once.) A token names its key (`kid`, RFC 7515, section 4.1.4); tokens without that are
tried with every key.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from api.store import Document, RevisionConflict, Store, StoreWriteError
from api.store.loaded import Loaded
from config.files.durable import KEY_BYTES
from config.files.secret_box import SealedFor, SecretBox, SecretBoxError, sealing_as

log = logging.getLogger(__name__)

COLLECTION, DOCUMENT = "secrets", "access-tokens"


@dataclass(frozen=True, slots=True)
class SigningKey:
    """One key. `until` is Unix seconds; None for the one that signs."""

    id: str
    secret: bytes = field(repr=False)
    until: float | None = None


class SigningKeys:
    """All keys of a store, as they are at this moment. Thread-safe. Raises `StoreError`."""

    def __init__(self, store: Store, seal: SecretBox, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._seal = seal
        self._clock = clock
        self._loaded: Loaded[tuple[SigningKey, ...]] = Loaded(COLLECTION, self._opened)

    @property
    def current(self) -> SigningKey:
        """The key that signs, made at the first use."""
        while not (keys := self._loaded.get(self._store, DOCUMENT)):
            try:
                self._put([_new_key()])
            except RevisionConflict:
                continue  # another thread has made one
        return keys[0]

    def believed(self) -> tuple[SigningKey, ...]:
        """Those that a token of now may be signed with."""
        now = self._clock()
        keys = self._loaded.get(self._store, DOCUMENT) or ()
        return tuple(key for key in keys if key.until is None or key.until > now)

    def rotate(self, last_token_ends: float | None) -> SigningKey:
        """Sign with a new key, which is returned; the previous one verifies until `last_token_ends` (Unix seconds).

        None: neither that one nor any older one verifies any more. Raises `RevisionConflict` when another rotation
        comes between, unless within `Engine.exclusive`.
        """
        fresh, older = _new_key(), []
        if last_token_ends is not None:
            older = [SigningKey(key.id, key.secret, key.until or last_token_ends) for key in self.believed()]
        self._put([fresh, *older])
        return fresh

    def _put(self, keys: Sequence[SigningKey]) -> None:
        expect = self._store.revision_of(COLLECTION, DOCUMENT)
        with sealing_as(StoreWriteError):
            sealed = [
                {"secret_sealed": self._seal.seal(key.secret.hex(), SealedFor.SIGNING_KEY), "until": key.until}
                for key in keys
            ]
        self._store.put(COLLECTION, {"id": DOCUMENT, "keys": sealed}, expect)

    def _opened(self, document: Document) -> tuple[SigningKey, ...]:
        """None at all when they can't be opened: tokens are worth less than a start."""
        keys = document.body["keys"]
        try:
            return tuple(
                _key(bytes.fromhex(self._seal.open(each["secret_sealed"], SealedFor.SIGNING_KEY)), each["until"])
                for each in keys
            )
        except SecretBoxError as error:
            log.error("the keys of access tokens can't be opened, and a new one takes their place: %s", error)
            return ()


def _new_key() -> SigningKey:
    return _key(secrets.token_bytes(KEY_BYTES))


def _key(secret: bytes, until: float | None = None) -> SigningKey:
    return SigningKey(hashlib.sha256(b"access token key\n" + secret).hexdigest()[:12], secret, until)
