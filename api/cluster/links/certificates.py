"""The certificate of a node, by which other nodes know it, and TLS between nodes. Thread-safe.

There is no certificate authority. Each node makes a key and a certificate that it signs itself; what counts is its
fingerprint, the SHA-256 of its DER. Names and dates in it mean nothing: it holds from 2000 to 9999, so that nodes meet
whatever their clocks say. A certificate that is in no node's document is refused in the handshake. One whose document
is deleted is refused at the next request, since each looks it up anew; and no session is resumed.
"""

from __future__ import annotations

import hmac
import secrets
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import Any, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import NameOID

from config import OperatorError
from config.files.durable import replace_file
from config.files.paths import DataDir, PathError, private_directory

LARGEST = 4096
"""Characters of a certificate in PEM that are read; ours have 500."""
_FROM, _UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)


class NodeCertificateError(OperatorError):
    """A certificate can't be used, or isn't the one that is expected. The text has no secret."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node as its document in the collection `nodes` has it; `certificate` is in PEM, or empty."""

    id: str
    name: str
    role: str
    certificate: str

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """That of a document."""
        return cls(body["id"], body["name"], body["role"], body["certificate"]["pem"])


@dataclass(frozen=True, slots=True)
class OwnCertificate:
    """The files of this node's certificate and of its key, and what of it is public: the certificate in PEM."""

    cert_file: Path
    key_file: Path
    pem: str

    @property
    def fingerprint(self) -> str:
        """See `fingerprint_of`."""
        return fingerprint_of(self.pem)

    def sign(self, text: str) -> bytes:
        """Show that this has the key. Raises `NodeCertificateError`."""
        try:
            key = load_pem_private_key(self.key_file.read_bytes(), None)
        except (OSError, ValueError, TypeError) as error:
            raise NodeCertificateError(f"{self.key_file}: can't be read: {error}") from error
        assert isinstance(key, EllipticCurvePrivateKey)
        return key.sign(text.encode(), ECDSA(SHA256()))


def own_certificate(data: DataDir) -> OwnCertificate:
    """That of this installation, made at the first use and the same for ever. Raises `NodeCertificateError`."""
    cert, key = data.cluster / "node.crt", data.cluster / "node.pem"
    try:
        private_directory(data.cluster)
        if not (cert.exists() and key.exists()):
            private = generate_private_key(SECP256R1())
            replace_file(key, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
            replace_file(cert, _signed(private))
        own = OwnCertificate(cert, key, cert.read_text("ascii"))
    except (OSError, ValueError, PathError) as error:
        raise NodeCertificateError(f"{data.cluster}: no certificate of this node: {error}") from error
    fingerprint_of(own.pem)
    return own


def fingerprint_of(pem: str) -> str:
    """The fingerprint of a node's certificate, 64 hex digits. Raises `NodeCertificateError`."""
    return sha256(_read(pem).public_bytes(Encoding.DER)).hexdigest()


def canonical(pem: str) -> str:
    """The same certificate and nothing beside it, as each node can load it. Raises `NodeCertificateError`."""
    return _read(pem).public_bytes(Encoding.PEM).decode("ascii")


def is_signed(pem: str, text: str, signature: bytes) -> bool:
    """Whether the one who has the key of this certificate has signed this. Raises `NodeCertificateError`."""
    public = _read(pem).public_key()
    assert isinstance(public, EllipticCurvePublicKey)
    try:
        public.verify(signature, text.encode(), ECDSA(SHA256()))
    except InvalidSignature:
        return False
    return True


class Certificates:
    """TLS 1.3 of this node with the others: `nodes` are those that it knows at this moment."""

    def __init__(self, own: OwnCertificate, nodes: Callable[[], Sequence[KnownNode]]) -> None:
        self.own = own
        self._nodes = nodes
        self._lock = threading.Lock()
        self._cached: tuple[tuple[str, ...], ssl.SSLContext] = ((), self._context(()))

    def server_context(self) -> ssl.SSLContext:
        """For a connection that comes: the other side has the certificate of a node, or none."""
        known = tuple(each.certificate for each in self._nodes() if each.certificate)
        with self._lock:
            if self._cached[0] != known:
                self._cached = known, self._context(known)
            return self._cached[1]

    def node_of(self, connection: ssl.SSLSocket) -> KnownNode | None:
        """The node on the other side of a connection that came; None when it has no certificate, or not any more."""
        der = connection.getpeercert(True)
        return None if der is None else self.node_with(sha256(der).hexdigest())

    def node_with(self, fingerprint: str) -> KnownNode | None:
        """The node with this fingerprint, if there is one now."""
        known = [each for each in self._nodes() if each.certificate]
        found = [each for each in known if hmac.compare_digest(fingerprint_of(each.certificate), fingerprint)]
        return found[0] if found else None

    def _context(self, known: Sequence[str]) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        context.verify_mode = ssl.CERT_OPTIONAL
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        context.load_cert_chain(self.own.cert_file, self.own.key_file)
        for each in known:
            context.load_verify_locations(cadata=each)
        return context


def connected(
    address: tuple[str, int], fingerprint: str, until: float, own: OwnCertificate | None = None
) -> ssl.SSLSocket:
    """A connection to the node with this fingerprint, before which nothing is sent; with our certificate, if given.

    `until` is of the monotonic clock. Raises `NodeCertificateError` when it is another node, and `OSError`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the fingerprint is what counts
    if own is not None:
        context.load_cert_chain(own.cert_file, own.key_file)
    plain = socket.create_connection(address, timeout=_left(until))
    try:
        plain.settimeout(_left(until))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        secured = context.wrap_socket(plain)
    except BaseException:
        plain.close()
        raise
    found = sha256(secured.getpeercert(True) or b"").hexdigest()
    if not hmac.compare_digest(found, fingerprint):
        with suppress(OSError):
            secured.close()
        raise NodeCertificateError(
            f"{address[0]}:{address[1]} has the certificate {found}, and {fingerprint} is expected: it is another"
            " machine, or someone between; nothing was sent"
        )
    return secured


def _left(until: float) -> float:
    left = until - time.monotonic()
    if left <= 0:
        raise TimeoutError("no response in time")
    return left


@lru_cache(maxsize=1024)
def _read(pem: str) -> x509.Certificate:
    try:
        if len(pem) > LARGEST or pem.count("-----BEGIN") != 1:
            raise ValueError("not one certificate")
        found = x509.load_pem_x509_certificate(pem.encode("ascii"))
        public = found.public_key()
        if not isinstance(public, EllipticCurvePublicKey) or not isinstance(public.curve, SECP256R1):
            raise ValueError("its key is not one of P-256")
        found.verify_directly_issued_by(found)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise NodeCertificateError(f"this is not the certificate of a node: {error}") from error
    return found


def _signed(key: EllipticCurvePrivateKey) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"proxyfleet-{secrets.token_hex(8)}")])
    serial = x509.random_serial_number()
    builder = x509.CertificateBuilder(name, name, key.public_key(), serial, _FROM, _UNTIL)
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    return builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
