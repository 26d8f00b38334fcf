"""The certificate that a client has shown in its TLS handshake, as accounts know it.

Loaded only where clients are asked for one.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from typing import Any, NamedTuple

from actors.net.transport import Transport
from config.files.certificates import normal_entry

NAMES_MAX = 100
"""Names of one certificate that accounts are found by."""

_KINDS = {"DNS": "DNS:", "URI": "URI:"}


class PeerCertificate(NamedTuple):
    """`entries` are normal (`config.files.certificates`), the fingerprint first. `ends` is Unix seconds."""

    entries: tuple[str, ...]
    ends: float


def read_peer(transport: Transport) -> PeerCertificate | None:
    """The certificate of the client at the other end, which was verified; None when it has shown none."""
    from actors.net.tls_stream import TlsStream

    found = transport.peer_certificate() if isinstance(transport, TlsStream) else None
    if found is None:
        return None
    fields, der = found
    names = dict.fromkeys(_names(fields))
    fingerprint = f"SHA256:{hashlib.sha256(der).hexdigest()}"
    return PeerCertificate(
        (fingerprint, *tuple(names)[:NAMES_MAX]), float(ssl.cert_time_to_seconds(fields["notAfter"]))
    )


def _names(fields: dict[str, Any]) -> Iterator[str]:
    """The common names of the subject, and the alternative names (RFC 5280 4.1.2.6 and 4.2.1.6)."""
    common = (value for part in fields.get("subject", ()) for name, value in part if name == "commonName")
    other = (_KINDS[kind] + value for kind, value in fields.get("subjectAltName", ()) if kind in _KINDS)
    for text in (*(f"CN={value}" for value in common), *other):
        try:
            yield normal_entry(text)
        except ValueError:
            continue  # no account can have such an entry
