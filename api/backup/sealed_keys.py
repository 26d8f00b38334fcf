"""The key files under a passphrase: scrypt (RFC 7914) and AES-256-GCM, with the manifest as additional data.

So the seal opens only with the archive that it was made for: any change without the passphrase is detected, since the
manifest has the hashes of all files.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Mapping

from api.backup.manifest import BadArchive
from config.text.formatting import size_text

N, R, P = 2**16, 8, 1
"""64 MiB and about a fifth of a second for each guess."""
SHORTEST = 12
_MOST_N = 2 * N
"""The highest cost that is accepted: an archive decides how much memory is needed to open it."""


def seal(keys: Mapping[str, bytes], passphrase: str, manifest: bytes) -> bytes:
    """The sealed content of the key files, by name."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    salt, nonce = os.urandom(16), os.urandom(12)
    content = json.dumps({name: _text(key) for name, key in keys.items()}).encode()
    data = AESGCM(_derived(passphrase, salt, N)).encrypt(nonce, content, hashlib.sha256(manifest).digest())
    return json.dumps(
        {"kdf": "scrypt", "n": N, "salt": _text(salt), "nonce": _text(nonce), "data": _text(data)}
    ).encode()


def unseal(sealed: bytes, passphrase: str, manifest: bytes) -> dict[str, bytes]:
    """The key files. Raises `BadArchive`."""
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        head = json.loads(sealed)
        n = int(head["n"])
        salt, nonce, data = (base64.b64decode(head[name], validate=True) for name in ("salt", "nonce", "data"))
        if head["kdf"] != "scrypt" or n < N or n & (n - 1):
            raise ValueError("not as this release seals")
        if n > _MOST_N:
            raise ValueError(
                f"scrypt with n={n} would take {_memory(n)}, and at most {_memory(_MOST_N)} are given to it"
            )
        content = AESGCM(_derived(passphrase, salt, n)).decrypt(nonce, data, hashlib.sha256(manifest).digest())
    except InvalidTag as error:
        raise BadArchive("its keys can't be opened: another passphrase, or the archive was altered") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise BadArchive(f"its sealed keys are damaged: {error}") from error
    return {name: base64.b64decode(text) for name, text in json.loads(content).items()}


def _memory(n: int) -> str:
    return size_text(128 * n * R)


def check_passphrase(text: str) -> str:
    """`text` if it is long enough. Raises `ValueError`."""
    if len(text) < SHORTEST:
        raise ValueError(f"the passphrase must have at least {SHORTEST} characters")
    return text


def _derived(passphrase: str, salt: bytes, n: int) -> bytes:
    return hashlib.scrypt(passphrase.encode(), salt=salt, n=n, r=R, p=P, maxmem=132 * n * R * P + 2**20, dklen=32)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
