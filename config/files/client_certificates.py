"""Certificates of clients: the files that they are verified by, and the names that accounts know them under.

An entry is `CN=`, `DNS:`, `URI:` or `SHA256:` and a value. Entries are compared as text once they are normal: names of
hosts in lower case, fingerprints as hexadecimal digits without colons.
"""

from __future__ import annotations

import re
import ssl
from pathlib import Path
from typing import NamedTuple

from config.files.certificates import CertificateError, no_certificate, unusable_file
from config.net.host_names import is_host_name

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

    No session is resumed: a resumed one has the result of a former verification.
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
