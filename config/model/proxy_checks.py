"""Checks of a whole proxy: the certificate that it would serve, and warnings where unknown clients can use it.

An open proxy is soon found and abused, and its operator is held responsible. It isn't refused, since a firewall may
protect it; the warning is in the proxy's view and in the log.
"""

from __future__ import annotations

import ssl
from ipaddress import ip_network
from pathlib import Path
from typing import NamedTuple, Protocol

from config.files.certificates import CertificateError, ClientFiles, ask_clients, ends_at, for_callers, server_context
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyRecord
from config.model.proxy_parts import ProxyAccess
from config.net.names import is_loopback
from config.text.formatting import timestamp_text


class Warned(NamedTuple):
    """A warning, and the field that causes it."""

    field: str
    warning: str


def warnings(record: ProxyRecord) -> list[Warned]:
    """The warnings about a proxy; none for one that listens at loopback alone."""
    if is_loopback(record.host):
        return []
    found = []
    if not record.auth.enabled and _admits_all(record.access):
        found.append(
            Warned(
                "auth.enabled",
                f"any client that reaches {record.host} port {record.port} can use this proxy: it asks for no "
                "credentials, and access.allow_clients allows all clients",
            )
        )
    if record.accept_proxy_protocol:
        found.append(
            Warned(
                "accept_proxy_protocol",
                f"any client that reaches {record.host} port {record.port} can claim any address: "
                "allow only the balancer to reach it",
            )
        )
    return found


def _admits_all(access: ProxyAccess) -> bool:
    everything = any(ip_network(each).prefixlen == 0 for each in access.allow_clients)
    return not access.allow_clients or everything or access.mode == "report"


class ServerCertificate(Protocol):
    """The files of `server.tls`, None where the operator named none."""

    @property
    def cert_file(self) -> Path | None: ...

    @property
    def key_file(self) -> Path | None: ...


def check_certificate(record: ProxyRecord, of_server: ServerCertificate) -> None:
    """A proxy that speaks TLS needs a certificate that can be used: its own, else that of `server.tls`.

    Raises `InvalidProxy`.
    """
    if not record.speaks_tls:
        return
    own = record.tls
    has_pair = own is not None and own.cert_file is not None
    if not has_pair and (of_server.cert_file is None or of_server.key_file is None):
        raise InvalidProxy("tls", f"is required for {record.protocol}, since server.tls has no cert_file and key_file")
    cert, key = (own.cert_file, own.key_file) if own and has_pair else (of_server.cert_file, of_server.key_file)
    assert cert is not None
    assert key is not None
    try:
        context = server_context(Path(cert), Path(key))
    except CertificateError as error:
        field = f"tls.{error.field}" if has_pair else f"server.tls.{error.field}"
        raise InvalidProxy(field, for_callers(field, error.error)) from error
    if own is not None and own.client_ca is not None:
        _check_client_files(context, ClientFiles(own.client_ca, own.client_crl))


def _check_client_files(context: ssl.SSLContext, files: ClientFiles) -> None:
    try:
        ask_clients(context, files)
    except CertificateError as error:
        field = f"tls.{error.field}"
        raise InvalidProxy(field, for_callers(field, error.error)) from error


def refuse_ended_certificate(
    record: ProxyRecord, of_server: ServerCertificate, served_until: float, now: float
) -> None:
    """Refuse files whose certificate has ended while the one that is served, which ends at `served_until`, has not.

    For a proxy whose certificate `check_certificate` found good. Times are Unix seconds. Raises `InvalidProxy`.
    """
    own = record.tls.cert_file if record.tls else None
    cert_file = own or of_server.cert_file
    if not record.speaks_tls or cert_file is None or served_until <= now:
        return
    ends = ends_at(Path(cert_file))
    if ends <= now:
        field = "tls.cert_file" if own else "server.tls.cert_file"
        until = timestamp_text(served_until)
        error = f"ended at {timestamp_text(ends)}, and the process that runs serves a certificate that ends at {until}"
        raise InvalidProxy(field, error)
