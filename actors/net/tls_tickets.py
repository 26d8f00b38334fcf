"""Session tickets (RFC 8446 4.6.1, RFC 5077) under keys that all processes can derive: a session that one process began
is resumed by another, also behind a restart.

Python's `ssl` has no call for the keys of tickets, but OpenSSL has: `SSL_CTX_ctrl`. The pointer to the `SSL_CTX` is the
first field of an `SSLContext`, which no documentation promises. So `works` tries all of it, in a process of its own:
if that one dies, nothing else does. What has passed is the *build*, and the root key carries its name: only processes
of the same build use it. Without a root key each context has random keys of its own, and resumes its own sessions.

The supervisor makes the root key and replaces it (`actors.supervision.ticket_rotation`). The keys of a context are
derived from it by a name and by the certificate, so no proxy accepts a session of another, nor one from before a change
of its certificate. A ticket is not accepted behind a change of the root key: the client makes a full handshake.
"""

from __future__ import annotations

import _ssl
import hashlib
import hmac
import logging
import os
import ssl
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgpack

log = logging.getLogger(__name__)

ROOT_SIZE = 32
KEYS_SIZE = 80
"""Bytes of a name, of a key for HMAC and of one for AES, as OpenSSL wants them."""
FILE_MAX = 4096

_GET_KEYS, _SET_KEYS = 58, 59
"""`SSL_CTRL_GET_TLSEXT_TICKET_KEYS` and `SSL_CTRL_SET_TLSEXT_TICKET_KEYS` of OpenSSL's `ssl.h`."""
_INFO = b"proxyfleet session tickets\0"


class Root(NamedTuple):
    """The key that those of contexts are derived from. `made_at` is by the monotonic clock of the boot `boot`."""

    build: str
    boot: bytes | None
    made_at: float
    key: bytes


def build() -> str:
    """What a check holds for: this interpreter with these libraries."""
    return f"{sys.implementation.name} {sys.version} {ssl.OPENSSL_VERSION} {getattr(_ssl, '__file__', '')}"


def read_root(file: Path) -> Root | None:
    """What the file has; None when it isn't there or has anything else."""
    try:
        with file.open("rb", buffering=0) as opened:
            root = Root(*msgpack.unpackb(opened.read(FILE_MAX)))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, msgpack.UnpackException) as error:
        log.warning("%s can't be used: %s", file, error)
        return None
    return root if isinstance(root.key, bytes) and len(root.key) == ROOT_SIZE else None


def write_root(file: Path, root: Root) -> None:
    """Replace the file. Raises `OSError`."""
    fresh = file.with_name(f".{file.name}")
    fresh.unlink(missing_ok=True)
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as opened:
        opened.write(msgpack.packb(root))
    fresh.replace(file)


def derived(root: bytes, info: bytes, size: int) -> bytes:
    """HKDF-Expand with SHA-256 (RFC 5869 2.3); `root` is random, so it needs no HKDF-Extract (3.3)."""
    made = block = b""
    while len(made) < size:
        block = hmac.digest(root, block + info + bytes([len(made) // 32 + 1]), "sha256")
        made += block
    return made[:size]


class Tickets:
    """The keys of tickets of one proxy, or of the API: `name` tells them apart. `file` has the root key."""

    def __init__(self, file: Path, name: str) -> None:
        self._file = file
        self._name = name
        self._seen: object = None

    def set_keys(self, context: ssl.SSLContext, pair: Iterable[Path]) -> None:
        """Give a new context the keys for the certificate and key in these files.

        Without a root key that holds for this build it keeps those that it has.
        """
        self._seen = self._fingerprint()
        root = read_root(self._file)
        if root is None or root.build != build():
            return
        digest = hashlib.sha256()
        for each in pair:
            digest.update(hashlib.sha256(each.read_bytes()).digest())
        set_keys(context, derived(root.key, _INFO + self._name.encode() + b"\0" + digest.digest(), KEYS_SIZE))

    @property
    def changed(self) -> bool:
        """Whether there is another root key than at the last `set_keys`. None at all is no change."""
        found = self._fingerprint()
        return found is not None and found != self._seen

    def _fingerprint(self) -> object:
        try:
            status = os.stat(self._file)
        except OSError:
            return None
        return status.st_ino, status.st_mtime_ns


def set_keys(context: ssl.SSLContext, keys: bytes) -> None:
    """Let the context make and read tickets by these keys. To be called only where `works` is known to hold."""
    if _control(context, _SET_KEYS, keys)[0] != 1:
        raise OSError("OpenSSL refuses the keys of session tickets")


def keys_of(context: ssl.SSLContext) -> bytes:
    """The keys that the context has. To be called only where `works` is known to hold."""
    done, keys = _control(context, _GET_KEYS, bytes(KEYS_SIZE))
    if done != 1:
        raise OSError("OpenSSL doesn't say the keys of session tickets")
    return keys


def _control(context: ssl.SSLContext, command: int, keys: bytes) -> tuple[int, bytes]:
    """What `SSL_CTX_ctrl` returns, and the keys behind it."""
    import ctypes  # only processes that serve TLS pay for it

    call = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    call.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p)
    call.restype = ctypes.c_long
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value
    buffer = ctypes.create_string_buffer(keys, KEYS_SIZE)
    return call(pointer, command, KEYS_SIZE, buffer), buffer.raw


def works() -> bool:
    """Whether all of this does what it should in this build. It may end the process: call it in one of its own."""
    try:
        first, second, other = _anonymous_server(), _anonymous_server(), _anonymous_server()
        keys = os.urandom(KEYS_SIZE)
        set_keys(first, keys)
        set_keys(second, keys)
        set_keys(other, os.urandom(KEYS_SIZE))
        if (keys_of(first), keys_of(second)) != (keys, keys):
            return False
        client = _anonymous(ssl.PROTOCOL_TLS_CLIENT)
        session = _handshake(client, first).session
        resumed = [_handshake(client, each, session).session_reused for each in (second, other)]
    except (OSError, AttributeError, ImportError):  # a library that is linked statically has no such symbol
        return False
    return resumed == [True, False]


def _anonymous_server() -> ssl.SSLContext:
    return _anonymous(ssl.PROTOCOL_TLS_SERVER)


def _anonymous(protocol: int) -> ssl.SSLContext:
    """A context of TLS 1.2 without any certificate: for this check alone."""
    context = ssl.SSLContext(protocol)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers("aNULL:@SECLEVEL=0")
    return context


def _handshake(client: ssl.SSLContext, server: ssl.SSLContext, session: ssl.SSLSession | None = None) -> ssl.SSLObject:
    """The client's end of a connection within this process."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    theirs = server.wrap_bio(there, back, server_side=True)
    ours = client.wrap_bio(back, there, session=session)
    waiting = [ours, theirs]
    while waiting:
        for each in tuple(waiting):
            try:
                each.do_handshake()
                waiting.remove(each)
            except ssl.SSLWantReadError:
                continue
    return ours
