"""Whether clients trust a certificate already, or need its authority."""

from __future__ import annotations

import ssl
from functools import cache
from pathlib import Path

from cryptography import x509
from requests.utils import DEFAULT_CA_BUNDLE_PATH


def is_private(cert_file: Path) -> bool:
    """Whether the chain in `cert_file` (PEM) is issued by none of the public authorities (those of certifi).

    A file that can't be read counts as private, as certificates made by hand are.
    """
    try:
        chain = x509.load_pem_x509_certificates(cert_file.read_bytes())
        return chain[-1].issuer.public_bytes() not in _public()
    except (OSError, ValueError):
        return True


@cache
def _public() -> bytes:
    """The public authorities as DER, which holds their names as they stand in what they have issued."""
    context = ssl.create_default_context(cafile=DEFAULT_CA_BUNDLE_PATH)
    return b"".join(context.get_ca_certs(binary_form=True))
