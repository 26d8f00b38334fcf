"""An authority that issues certificates to clients, and revokes them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = timedelta(days=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """`ca` is its own certificate and `crl` its revocation list, as files in `folder`."""

    def __init__(self, folder: Path, name: str = "builds") -> None:
        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.ca, self.crl = folder / "clients-ca.pem", folder / "clients-crl.pem"
        self._key, self._name = generate_private_key(SECP256R1()), _name(name)
        self._revoked: list[x509.RevokedCertificate] = []
        now, public = datetime.now(UTC), self._key.public_key()
        builder = x509.CertificateBuilder(self._name, self._name, public, x509.random_serial_number())
        builder = builder.not_valid_before(now - DAY).not_valid_after(now + 30 * DAY)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        self.ca.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        self.write_crl()

    def issue(
        self, name: str, dns: Iterable[str] = (), uris: Iterable[str] = (), left: timedelta = 7 * DAY
    ) -> tuple[str, str]:
        """Files with a client's certificate, which is valid for `left` more, and its key."""
        key, end = generate_private_key(SECP256R1()), datetime.now(UTC) + left
        builder = x509.CertificateBuilder(self._name, _name(name), key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(end - 30 * DAY).not_valid_after(end)
        names = [*map(x509.DNSName, dns), *map(x509.UniformResourceIdentifier, uris)]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        signed = builder.add_extension(usage, critical=False).sign(self._key, SHA256())
        cert, private = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        cert.write_bytes(signed.public_bytes(Encoding.PEM))
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return str(cert), str(private)

    def revoke(self, cert: str) -> None:
        """Put a certificate on the list, and write that."""
        serial = x509.load_pem_x509_certificate(Path(cert).read_bytes()).serial_number
        revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(datetime.now(UTC))
        self._revoked.append(revoked.build())
        self.write_crl()

    def write_crl(self) -> None:
        """Write the revocation list anew, as a file that takes the former one's place."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(now - DAY).next_update(now + 7 * DAY)
        for each in self._revoked:
            builder = builder.add_revoked_certificate(each)
        fresh = self.crl.with_suffix(".new")
        fresh.write_bytes(builder.sign(self._key, SHA256()).public_bytes(Encoding.PEM))
        fresh.replace(self.crl)


def fingerprint(cert: str) -> str:
    """The SHA-256 of a certificate, as people copy it: upper-case letters and colons."""
    loaded = x509.load_pem_x509_certificate(Path(cert).read_bytes())
    return loaded.fingerprint(SHA256()).hex(":").upper()
