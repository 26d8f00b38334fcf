"""Certificates for tests: a valid pair, and one whose time has passed. Each signs itself; no two trust each other."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

LIFETIME = timedelta(days=400)
DEFAULT_LEFT = timedelta(days=30)


def make_pair(
    folder: Path, name: str = "first", left: timedelta = DEFAULT_LEFT, hosts: Iterable[str] = ("localhost",)
) -> tuple[str, str]:
    """Write `cert.pem` and `key.pem` for `hosts` and 127.0.0.1 and return their paths; it is valid for `left` more."""
    private, end = generate_private_key(SECP256R1()), datetime.now(UTC) + left
    subject, public = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), private.public_key()
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(subject, subject, public, serial, end - LIFETIME, end)
    names = x509.SubjectAlternativeName([*map(x509.DNSName, hosts), x509.IPAddress(ip_address("127.0.0.1"))])
    builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(builder.sign(private, SHA256()).public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(cert), str(key)


def make_ended_pair(folder: Path) -> tuple[str, str]:
    """A pair whose certificate ended an hour ago."""
    return make_pair(folder, "ended", -timedelta(hours=1))
