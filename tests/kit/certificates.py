"""Certificates for tests, made with openssl: a good pair, and one whose time has passed."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

SELF_SIGNED = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 -subj /CN={name} "
    "-addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout {key} -out {cert}"
)


def make_pair(folder: Path, name: str = "first") -> tuple[str, str]:
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = SELF_SIGNED.format(name=name, key=key, cert=cert)
    subprocess.run(command.split(), check=True, capture_output=True)
    return str(cert), str(key)


def make_ended_pair(folder: Path) -> tuple[str, str]:
    """A pair whose certificate ended an hour ago."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    private, name = generate_private_key(SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ended")])
    end = datetime.now(UTC) - timedelta(hours=1)
    builder = x509.CertificateBuilder(name, name, private.public_key(), 1, end - timedelta(days=1), end)
    cert.write_bytes(builder.sign(private, SHA256()).public_bytes(Encoding.PEM))
    key.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return str(cert), str(key)
