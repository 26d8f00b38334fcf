"""What a configuration needs of the world: certificates that can be used, ports that are free, upstreams that answer.

Nothing is changed, and nothing is sent to an upstream but a TCP handshake.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from actors.supervision.listeners.bind import ListenError, listen
from api.security.new_passwords import WeakPassword, check_strength
from config.files.certificates import CertificateError, server_context, unusable_file
from config.files.paths import DataDir, unwritable
from config.model.proxies import ProxyRecord
from config.settings.settings import Settings
from config.text.formatting import timestamp_text

PATIENCE = 5.0
"""Seconds that an upstream has."""
AT_ONCE = 32
SOON = 21 * 86400.0
"""Seconds before its end from which a certificate is warned of."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: where it is configured, and what is wrong with it, if anything is."""

    where: str
    error: str | None = None
    grade: Literal["error", "note"] = "error"

    @property
    def bad(self) -> bool:
        """Would the product fail for it?"""
        return self.error is not None and self.grade == "error"


def certificates(settings: Settings, proxies: Iterable[ProxyRecord]) -> Iterator[Finding]:
    """Those of `server.tls` and of the proxies that have their own."""
    tls = settings.server.tls
    if tls.cert_file and tls.key_file:
        yield from _certificate("server.tls", tls.cert_file, tls.key_file)
    for proxy in proxies:
        if proxy.tls is not None:
            yield from _certificate(f"proxy {proxy.name}: tls", Path(proxy.tls.cert_file), Path(proxy.tls.key_file))


def first_password(settings: Settings, password_needed: bool) -> Iterator[Finding]:
    """Is the first administrator's good, if there has to be one?"""
    if settings.admin_password is None or not password_needed:
        return
    try:
        check_strength(settings.admin_password.get_secret_value())
    except WeakPassword as error:
        yield Finding("admin_password", str(error))
    else:
        yield Finding("admin_password")


def data_directory(data: DataDir) -> Iterator[Finding]:
    """Can it be written?"""
    yield Finding("data_dir", unwritable(data.path))


def ports(settings: Settings, proxies: Iterable[ProxyRecord]) -> Iterator[Finding]:
    """Can every address be listened at that the product would listen at?"""
    yield _address("server", settings.server.host, settings.server.port)
    for proxy in proxies:
        if proxy.status == "active":
            yield _address(f"proxy {proxy.name}", proxy.host, proxy.port)


def upstreams(proxies: Iterable[ProxyRecord]) -> list[Finding]:
    """Does every upstream take a connection? They are asked side by side."""
    asked = [
        (f"proxy {proxy.name}: upstreams: {upstream.name}", upstream.host, upstream.port)
        for proxy in proxies
        for upstream in proxy.upstreams
    ]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(lambda each: _reachable(*each), asked))


def _certificate(where: str, cert_file: Path, key_file: Path) -> Iterator[Finding]:
    files = {"cert_file": cert_file, "key_file": key_file}
    unusable = {field: trouble for field, path in files.items() if (trouble := unusable_file(path)) is not None}
    if unusable:
        yield from (Finding(f"{where}.{field}", trouble) for field, trouble in unusable.items())
        return
    try:
        server_context(cert_file, key_file)
    except CertificateError as error:
        yield Finding(f"{where}.{error.field}", f"{files[error.field]}: {error.error}")
        return
    from cryptography import x509

    found = x509.load_pem_x509_certificate(cert_file.read_bytes())
    end, begin = found.not_valid_after_utc.timestamp(), found.not_valid_before_utc.timestamp()
    left, told = end - time.time(), timestamp_text(end)
    if begin > time.time():
        yield Finding(f"{where}.cert_file", f"{cert_file}: is not good before {timestamp_text(begin)}; see the clock")
    elif left <= 0:
        yield Finding(f"{where}.cert_file", f"{cert_file}: has ended at {told}; replace it")
    elif left < SOON:
        yield Finding(f"{where}.cert_file", f"{cert_file}: ends at {told}, in {left / 86400:.0f} days", "note")
    else:
        yield Finding(f"{where}.cert_file")


def _address(where: str, host: str, port: int) -> Finding:
    try:
        listen(host, port).close()
    except ListenError as error:
        return Finding(f"{where}.{error.field}" if where == "server" else f"{where}: {error.field}", error.error)
    return Finding(f"{where}: {host}:{port}")


def _reachable(where: str, host: str, port: int) -> Finding:
    try:
        socket.create_connection((host, port), PATIENCE).close()
    except OSError as error:
        return Finding(where, f"{host}:{port} can't be reached: {error.strerror or error}")
    return Finding(where)
