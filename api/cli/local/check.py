"""`proxyfleet check-config` has all errors of the configuration at once, before the product is started; `config show`
every key with its value, the source of it, and what a change needs.

Checks on the machine: usable certificates, free ports, upstreams that can be reached. Nothing is changed, and nothing
but a TCP handshake is sent to an upstream.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cryptography import x509

from actors.supervision import fd_limit
from actors.supervision.listeners.bind import ListenError, listen
from api.cli.errors import CommandError
from api.cli.local.shared import settings_of, translated
from api.cli.terminal import Output, print_sources, source_text
from api.operator.offline import has_users, peek_proxies, peek_settings
from api.security.users import WeakPassword, check_strength
from api.store import StoreError, check_fleet_file
from config.files.certificates import CertificateError, ClientFiles, ask_clients, server_context, unusable_file
from config.files.durable import require_own_format
from config.files.paths import DataDir, default_data_dir, holder, unwritable
from config.model.proxies import ProxyRecord
from config.net.names import Ports
from config.settings.loading import Origins, Places, Reading, described
from config.settings.runtime import Stored, shadowed_keys, with_overrides
from config.settings.settings import Settings
from config.text.formatting import counted, timestamp_text

UPSTREAM_TIMEOUT = 5.0
"""Seconds for a connection to an upstream."""
CONCURRENCY = 32
EXPIRY_WARNING = 21 * 86400.0
"""Seconds before the end of a certificate from which there is a note."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check: where the value is configured, and its error, if there is one."""

    where: str
    error: str | None = None
    grade: Literal["error", "note"] = "error"

    @property
    def bad(self) -> bool:
        """True if the product or a proxy would fail for it."""
        return self.error is not None and self.grade == "error"


def _peek(config: Path | None, data_dir: Path | None) -> tuple[Settings, DataDir, Stored, Settings]:
    """The configuration, its data directory, what the API overrides, and the effective settings. Only reads.

    Raises `CommandError`, and what is for people. Other users, who can't read the data, get the configuration alone.
    """
    settings = settings_of(config, data_dir=data_dir)
    data = DataDir(settings.data_dir or default_data_dir())
    if os.access(data.path, os.R_OK | os.X_OK):
        require_own_format(data.path)
    with translated(ValueError):
        stored = peek_settings(data)
    return settings, data, stored, with_overrides(settings, stored)


@translated()
def check_config(out: Output, config: Path | None, data_dir: Path | None, probe: bool) -> None:
    """All errors, or what was checked."""
    settings, data, stored, effective = _peek(config, data_dir)
    with translated(ValueError):
        proxies = peek_proxies(data)
    findings = list(_findings(effective, proxies, data, probe))
    bad = [finding for finding in findings if finding.bad]
    notes = shadowed_keys(settings, stored) + [
        f"{one.where}: {one.error}" for one in findings if one.error and not one.bad
    ]
    if bad:
        places = Places(config, {})
        problems = tuple((_placed(finding.where, places, stored), str(finding.error)) for finding in bad)
        raise CommandError(
            f"The configuration is well-formed, but {counted(len(bad), 'thing')} would fail", problems=problems
        )
    checked = [finding.where for finding in findings]
    out.data({"good": True, "notes": notes, "looked_at": checked}, lambda: _print(out, notes, checked))


def _print(out: Output, notes: list[str], checked: list[str]) -> None:
    out.message(f"The configuration is valid. Checked: {'; '.join(checked)}.")
    for sentence in notes:
        out.message(f"note: {sentence}")


def _findings(settings: Settings, proxies: list[ProxyRecord], data: DataDir, probe: bool) -> Iterator[Finding]:
    yield from data_directory(data)
    yield from store(data)
    yield from first_password(settings, not has_users(data))
    yield from certificates(settings, proxies)
    yield descriptors(proxies)
    if not probe:
        return
    process = holder(data.lock)
    if process is None:
        yield from ports(settings, proxies)
    else:
        yield Finding("ports", f"not tried: the product runs as process {process} and has them", "note")
    yield from upstreams(proxies)


def _placed(where: str, places: Places, stored: Mapping[str, Any]) -> str:
    """A key preceded by file and line or variable, unless the API overrides it."""
    group, _, key = where.partition(".")
    if " " in where or key in stored.get(group, {}):
        return where
    return f"{places.of(tuple(where.split('.')))}{where}"


@translated()
def show_config(out: Output, config: Path | None, data_dir: Path | None, changed: bool) -> None:
    """Every key with the source of its value."""
    settings, _data, stored, effective = _peek(config, data_dir)
    origins = Origins.read(config, {"data_dir": data_dir} if data_dir else {})
    found = [each.plain() for each in described(Reading(settings, origins), stored, effective)]
    print_sources(out, "config", [{**each, "source": source_text(each)} for each in found], changed)


# --- what is checked ---


def certificates(settings: Settings, proxies: Iterable[ProxyRecord]) -> Iterator[Finding]:
    """Check the certificates of `server.tls` and of proxies."""
    tls = settings.server.tls
    if tls.cert_file and tls.key_file:
        yield from _certificate("server.tls", tls.cert_file, tls.key_file)
    for proxy in proxies:
        own = proxy.tls
        if own is not None and own.cert_file and own.key_file:
            yield from _certificate(f"proxy {proxy.name}: tls", Path(own.cert_file), Path(own.key_file))
        if own is not None and own.client_ca is not None:
            yield _client_files(f"proxy {proxy.name}: tls", ClientFiles(own.client_ca, own.client_crl))


def first_password(settings: Settings, password_needed: bool) -> Iterator[Finding]:
    """Check the first administrator's password, if one is needed."""
    if settings.admin_password is None or not password_needed:
        return
    given = settings.admin_password.get_secret_value()
    yield _tried("admin_password", lambda: check_strength(given), WeakPassword)


def data_directory(data: DataDir) -> Iterator[Finding]:
    """Check that the data directory can be written."""
    yield Finding("data_dir", unwritable(data.path))


def store(data: DataDir) -> Iterator[Finding]:
    """Check that the file of the fleet can be read, if there is one."""
    if not os.access(data.fleet, os.R_OK):
        return
    yield _tried("store", lambda: check_fleet_file(data), StoreError)


def ports(settings: Settings, proxies: Iterable[ProxyRecord]) -> Iterator[Finding]:
    """Check that every address of the product can be bound."""
    yield _address("server", settings.server.host, settings.server.port)
    for proxy in proxies:
        if proxy.status == "active":
            yield _addresses(f"proxy {proxy.name}", proxy.host, proxy.ports)


def descriptors(proxies: Iterable[ProxyRecord]) -> Finding:
    """Check that the listening sockets of all proxies fit into the limit of descriptors that this process has."""
    needed = fd_limit.needed((len(each.ports), each.processes) for each in proxies if each.status == "active")
    limit = fd_limit.hard_limit()
    if needed <= limit:
        return Finding("descriptors")
    short = f"the service may need {needed} for the ports of its proxies, and the limit here is {limit}"
    return Finding("descriptors", f"{short}: raise it (LimitNOFILE= of the unit, ulimit -n)", "note")


def upstreams(proxies: Iterable[ProxyRecord]) -> list[Finding]:
    """Check that every upstream accepts a connection, several at a time."""
    targets = [
        (f"proxy {proxy.name}: upstreams: {upstream.name}", upstream.host, upstream.port)
        for proxy in proxies
        for upstream in proxy.upstreams
    ]
    with ThreadPoolExecutor(CONCURRENCY) as pool:
        return list(pool.map(lambda each: _reachable(*each), targets))


def _tried(where: str, check: Callable[[], object], failure: type[Exception]) -> Finding:
    """The finding of a check that raises `failure`, whose text is the error."""
    try:
        check()
    except failure as error:
        return Finding(where, str(error))
    return Finding(where)


def _client_files(where: str, files: ClientFiles) -> Finding:
    try:
        ask_clients(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files)
    except CertificateError as error:
        return Finding(f"{where}.{error.field}", error.error)
    return Finding(f"{where}.client_ca")


def _certificate(where: str, cert_file: Path, key_file: Path) -> Iterator[Finding]:
    files = {"cert_file": cert_file, "key_file": key_file}
    unusable = {field: text for field, path in files.items() if (text := unusable_file(path)) is not None}
    if unusable:
        yield from (Finding(f"{where}.{field}", text) for field, text in unusable.items())
        return
    try:
        server_context(cert_file, key_file)
    except CertificateError as error:
        yield Finding(f"{where}.{error.field}", f"{files[error.field]}: {error.error}")
        return
    found = x509.load_pem_x509_certificate(cert_file.read_bytes())
    end, begin = found.not_valid_after_utc.timestamp(), found.not_valid_before_utc.timestamp()
    left, end_text = end - time.time(), timestamp_text(end)
    if begin > time.time():
        yield Finding(
            f"{where}.cert_file", f"{cert_file}: is not valid before {timestamp_text(begin)}; check the clock"
        )
    elif left <= 0:
        yield Finding(f"{where}.cert_file", f"{cert_file}: expired at {end_text}; replace it")
    elif left < EXPIRY_WARNING:
        yield Finding(f"{where}.cert_file", f"{cert_file}: expires at {end_text}, in {left / 86400:.0f} days", "note")
    else:
        yield Finding(f"{where}.cert_file")


def _address(where: str, host: str, port: int) -> Finding:
    try:
        listen(host, port).close()
    except ListenError as error:
        return Finding(f"{where}.{error.field}" if where == "server" else f"{where}: {error.field}", error.error)
    return Finding(f"{where}: {host}:{port}")


def _addresses(where: str, host: str, ports: Ports) -> Finding:
    """As `_address`, of all ports; the first that can't be bound is named."""
    found = Finding(f"{where}: {host}:{ports}")
    for port in ports:
        one = _address(where, host, port)
        if one.error:
            return one
    return found


def _reachable(where: str, host: str, port: int) -> Finding:
    try:
        socket.create_connection((host, port), UPSTREAM_TIMEOUT).close()
    except OSError as error:
        return Finding(where, f"{host}:{port} can't be reached: {error.strerror or error}")
    return Finding(where)
