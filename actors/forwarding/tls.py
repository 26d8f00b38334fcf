"""TLS to the client: a stream that behaves like a plain non-blocking socket, and certificates that follow their files.

The stream reports "not now" as `BlockingIOError` whether TLS wants to read or to write; both directions of the socket
are watched, so whatever happens next tries again. The handshake takes place within the first reads.
"""

from __future__ import annotations

import logging
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path

from config.certificates import CertificateError, server_context

log = logging.getLogger(__name__)

CHECK_PERIOD = 1.0
"""Seconds between two looks at whether the files have changed."""

_NOT_NOW = (ssl.SSLWantReadError, ssl.SSLWantWriteError)


class TlsStream:
    """The server's end of one TLS connection, with the methods of a socket that a connection here needs."""

    __slots__ = ("_tls",)

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self._tls = context.wrap_socket(
            sock, server_side=True, do_handshake_on_connect=False, suppress_ragged_eofs=False
        )

    def recv(self, size: int, _flags: int = 0) -> bytes:
        """Clear bytes; `b""` for the end. Raises `BlockingIOError`, or `OSError` when the connection is broken.

        The end is only an end with a close_notify: without it somebody may have cut the rest off (RFC 8446 6.1).
        """
        try:
            return self._tls.recv(size)
        except _NOT_NOW:
            raise BlockingIOError from None
        except ssl.SSLZeroReturnError:
            return b""

    def send(self, data: bytes | memoryview) -> int:
        """How many bytes were taken. Raises as `recv`. After `BlockingIOError` the same bytes must come first."""
        try:
            return self._tls.send(data)
        except _NOT_NOW:
            raise BlockingIOError from None

    def shutdown(self, _how: int) -> None:
        """End the sending direction: a close_notify. The other goes on, so the socket itself is only closed later.

        Raises `OSError` when the connection is broken.
        """
        try:
            self._tls.unwrap()
        except _NOT_NOW:
            return  # ours is sent; the client's is still to come

    def fileno(self) -> int:
        """The socket's descriptor."""
        return self._tls.fileno()

    def setsockopt(self, level: int, option: int, value: bytes) -> None:
        """As of a socket."""
        self._tls.setsockopt(level, option, value)

    def close(self) -> None:
        """Close the socket."""
        self._tls.close()


class Certificate:
    """A certificate that is read again when its files change. A pair that can't be used leaves the last good one."""

    def __init__(self, cert_file: str, key_file: str, on_trouble: Callable[[str, str], None]) -> None:
        """Raises `CertificateError` when there is no good pair to begin with."""
        self._files = (Path(cert_file), Path(key_file))
        self._on_trouble = on_trouble
        self._seen = self._look()
        self._looked = 0.0
        self._context = server_context(*self._files)

    def context(self, now: float) -> ssl.SSLContext:
        """The context of the pair as it is now."""
        if now - self._looked > CHECK_PERIOD:
            self._looked = now
            seen = self._look()
            if seen != self._seen:
                self._reload(seen)
        return self._context

    def _reload(self, seen: tuple[object, ...]) -> None:
        try:
            self._context = server_context(*self._files)
        except CertificateError as error:
            # Perhaps one file of the pair is still to come: look again.
            self._on_trouble("certificate", f"the changed certificate is not used: {error}")
            return
        self._seen = seen
        log.info("the certificate %s was read again", self._files[0])

    def _look(self) -> tuple[object, ...]:
        """What changes when a file does."""
        marks: list[object] = []
        for path in self._files:
            try:
                status = os.stat(path)
                marks.append((status.st_ino, status.st_mtime_ns, status.st_size))
            except OSError:
                marks.append(None)
        return tuple(marks)
