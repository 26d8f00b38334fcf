"""Certificates from files: contexts for TLS servers, and checks of files that requests and settings name.

TLS 1.2 and 1.3 only, HTTP/1.1 by ALPN, no renegotiation (RFC 9325). Names and dates of a certificate are verified by
clients.
"""

from __future__ import annotations

import calendar
import logging
import ssl
import stat
import time
from pathlib import Path

from config.text.escaping import printable

log = logging.getLogger(__name__)

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_TIMES = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}

LARGEST = 8 * 2**20
"""Bytes of a file with certificates; a bundle of all authorities has some hundred thousand."""

_WEAK = ("EE_KEY_TOO_SMALL", "CA_KEY_TOO_SMALL", "CA_MD_TOO_WEAK")
_WANTED = {
    "cert_file": "a certificate in PEM",
    "key_file": "the unencrypted key of the certificate in PEM",
    "ca_file": "certificates in PEM",
    "client_ca": "certificates in PEM",
    "client_crl": "revocation lists in PEM and nothing else",
}


class CertificateError(Exception):
    """The files can't be used. `field` is that of the file in the configuration, `error` a sentence."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(f"{field}: {error}")
        self.field = field
        self.error = error


def server_context(cert_file: Path, key_file: Path) -> ssl.SSLContext:
    """A context for the server's side of connections. Raises `CertificateError`.

    The certificate is checked first, and the key only with a good certificate.
    """
    _check("cert_file", unusable_file(cert_file) or no_certificate(cert_file))
    _check("key_file", unusable_file(key_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 1  # of TLS 1.3: a connection to a proxy is resumed once, by the next one
    try:
        # The password callback is there so that an encrypted key is an error and not a question on the terminal.
        context.load_cert_chain(cert_file, key_file, password=lambda: b"")
    except ssl.SSLError as error:
        raise CertificateError(*_refused(error, key_file)) from error
    return context


def ends_at(cert_file: Path) -> float:
    """When the first certificate of the file ends (`notAfter`), in Unix seconds. Raises `CertificateError`.

    Read by hand, since the library that could read all of a certificate takes twelve megabytes in each process.
    """
    try:
        text = cert_file.read_text("ascii", "replace")
        der = ssl.PEM_cert_to_DER_cert(text[text.index(_BEGIN) : text.index(_END)] + _END)
        return _not_after(der)
    except OSError as error:
        raise CertificateError("cert_file", f"{cert_file}: {error.strerror or error}") from error
    except (ValueError, IndexError, KeyError) as error:
        raise CertificateError("cert_file", "has no certificate in PEM whose end can be read") from error


def _not_after(der: bytes) -> float:
    """RFC 5280 4.1: Certificate → TBSCertificate → [version] serial signature issuer *validity*."""
    at = _inside(der, _inside(der, 0))
    if der[at] == _VERSION:
        at = _behind(der, at)
    for _serial_signature_issuer in range(3):
        at = _behind(der, at)
    at = _behind(der, _inside(der, at))
    start, end = _content(der, at)
    return float(calendar.timegm(time.strptime(der[start:end].decode("ascii"), _TIMES[der[at]])))


def _content(der: bytes, at: int) -> tuple[int, int]:
    """Where the content of the element at `at` begins and ends (X.690 8.1.3)."""
    length, start = der[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(der[start : start + size], "big"), start + size
    return start, start + length


def _behind(der: bytes, at: int) -> int:
    return _content(der, at)[1]


def _inside(der: bytes, at: int) -> int:
    if der[at] != _SEQUENCE:
        raise ValueError("no SEQUENCE where one must be")
    return _content(der, at)[0]


def _check(field: str, error: str | None) -> None:
    if error is not None:
        raise CertificateError(field, error)


def no_certificate(path: Path) -> str | None:
    """Why there is no certificate in the file, as a sentence; None when there is one."""
    text = path.read_bytes()
    if b"-----BEGIN CERTIFICATE-----" not in text:
        return "has no certificate in PEM: must begin with -----BEGIN CERTIFICATE-----"
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        return "has no certificate in PEM that can be read"
    return None


def _refused(error: ssl.SSLError, key_file: Path) -> tuple[str, str]:
    """The field to blame, and why. The certificate itself can be read."""
    key = key_file.read_bytes()
    if error.reason == "KEY_VALUES_MISMATCH":
        return "key_file", "is not the key of the certificate"
    if error.reason in _WEAK:
        return "cert_file", f"is too weak for TLS here ({error.reason})"
    if b"ENCRYPTED" in key:
        return "key_file", "is encrypted: must be an unencrypted key in PEM"
    if b"PRIVATE KEY-----" not in key:
        return "key_file", "has no private key in PEM"
    return "key_file", "has no unencrypted private key in PEM that can be read"


def for_callers(field: str, cause: str) -> str:
    """The error for callers of the API about a file that can't be used: one sentence for all causes.

    Else callers could find out which files exist. The cause goes to the log.
    """
    log.warning("%s is refused: %s", field, printable(cause))
    return f"must be a file that this service can read, with {_WANTED[field.rpartition('.')[2]]}; its log has the cause"


def unusable_file(path: Path) -> str | None:
    """Why certificates can't be read from `path`, as a sentence; None when it can be tried.

    Callers of the API name files, and reading a device or a pipe may never end. Files that the kernel generates while
    they are read (`/proc`) have the size 0.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            return f"{path}: is not a regular file"
        if not 0 < found.st_size <= LARGEST:
            return f"{path}: must have 1 to {LARGEST} bytes"
        path.read_bytes()
    except OSError as error:
        return f"{path}: {error.strerror or error}"
    return None
