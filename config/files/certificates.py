"""Certificates from files: contexts for TLS servers, and checks of files that requests and settings name.

TLS 1.2 and 1.3 only, HTTP/1.1 by ALPN, no renegotiation (RFC 9325). Names and dates of a certificate are verified by
clients.

Certificates of clients: the files that they are verified by, and the names that accounts know them under. An entry is
`CN=`, `DNS:`, `URI:` or `SHA256:` and a value. Entries are compared as text once they are normal: names of hosts in
lower case, fingerprints as hexadecimal digits without colons.
"""

from __future__ import annotations

import calendar
import logging
import re
import ssl
import stat
import time
from pathlib import Path
from typing import NamedTuple

from config.net.names import is_host_name
from config.text.formatting import printable

log = logging.getLogger(__name__)

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
_TIMES = {_UTC_TIME: "%y%m%d%H%M%SZ", _GENERALIZED_TIME: "%Y%m%d%H%M%SZ"}

LARGEST = 8 * 2**20
"""Bytes of a file with certificates; a bundle of all authorities has some hundred thousand."""

_ENCRYPTED = re.compile(rb"BEGIN ENCRYPTED PRIVATE KEY|Proc-Type: 4, *ENCRYPTED")
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
    _check("key_file", unusable_file(key_file) or _encrypted(key_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    context.num_tickets = 1  # of TLS 1.3: a connection to a proxy is resumed once, by the next one
    try:
        # The password callback is there so that no key is a question on the terminal.
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


def _encrypted(key_file: Path) -> str | None:
    """That it is encrypted, as a sentence, if it is. It is not tried: the file says how much work that would be."""
    return "is encrypted: must be an unencrypted key in PEM" if _ENCRYPTED.search(key_file.read_bytes()) else None


def _refused(error: ssl.SSLError, key_file: Path) -> tuple[str, str]:
    """The field to blame, and why. The certificate itself can be read."""
    key = key_file.read_bytes()
    if error.reason == "KEY_VALUES_MISMATCH":
        return "key_file", "is not the key of the certificate"
    if error.reason in _WEAK:
        return "cert_file", f"is too weak for TLS here ({error.reason})"
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


ENTRY_MAX = 300
"""Characters of an entry."""

_CRL = b"-----BEGIN X509 CRL-----"
_FINGERPRINT = re.compile("[0-9A-Fa-f]{2}(?::?[0-9A-Fa-f]{2}){31}")
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[!-~]+")
_FORMS = "must be CN=…, DNS:…, URI:… or SHA256:…"


class ClientFiles(NamedTuple):
    """What clients' certificates are verified by: authorities, and what these have revoked, None for no such list.

    `required`: a client without a certificate is refused.
    """

    ca: str
    crl: str | None = None
    required: bool = True


def ask_clients(context: ssl.SSLContext, files: ClientFiles) -> None:
    """Have the context ask clients for a certificate. Raises `CertificateError`.

    No session is resumed: a resumed one has the result of a previous verification.
    """
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # each certificate of the file is trusted, also if no root
    context.verify_mode = ssl.CERT_REQUIRED if files.required else ssl.CERT_OPTIONAL
    ca = Path(files.ca)
    _load(context, "client_ca", ca, unusable_file(ca) or no_certificate(ca))
    if files.crl is not None:
        crl = Path(files.crl)
        _load(context, "client_crl", crl, unusable_file(crl) or _no_crl(crl))
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load(context: ssl.SSLContext, field: str, path: Path, error: str | None) -> None:
    if error is not None:
        raise CertificateError(field, error)
    try:
        context.load_verify_locations(cafile=path)
    except (ssl.SSLError, OSError) as fault:
        raise CertificateError(field, f"{path}: can't be read: {getattr(fault, 'reason', None) or fault}") from fault


def _no_crl(path: Path) -> str | None:
    content = path.read_bytes()
    if _CRL not in content:
        return f"has no revocation list in PEM: must begin with {_CRL.decode()}"
    if b"CERTIFICATE-----" in content:
        return "has a certificate, which would be trusted as an authority: must have revocation lists alone"
    return None


def normal_entry(text: str) -> str:
    """The entry as it is compared. Raises `ValueError` for what is none."""
    if len(text) > ENTRY_MAX:
        raise ValueError(f"{_FORMS}, with at most {ENTRY_MAX} characters")
    for prefix, normal in _KINDS.items():
        if text.startswith(prefix):
            return prefix + normal(text.removeprefix(prefix))
    raise ValueError(_FORMS)


def _common_name(value: str) -> str:
    name = value.strip()
    if not name:
        raise ValueError("CN= must have the common name of the certificate's subject behind it")
    return name


def _host_name(value: str) -> str:
    name = value.lower()
    if not is_host_name(name.removeprefix("*.")):
        raise ValueError("DNS: must have a host name behind it, as the certificate has it (IDN as xn--…)")
    return name


def _uri(value: str) -> str:
    if not _URI.fullmatch(value):
        raise ValueError("URI: must have a URI behind it, such as spiffe://example/build")
    return value


def _fingerprint(value: str) -> str:
    if not _FINGERPRINT.fullmatch(value):
        raise ValueError("SHA256: must have the certificate's fingerprint behind it, 64 hexadecimal digits")
    return value.replace(":", "").lower()


_KINDS = {"CN=": _common_name, "DNS:": _host_name, "URI:": _uri, "SHA256:": _fingerprint}
