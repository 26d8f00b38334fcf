"""Certificates for proxies that are made or uploaded here; a proxy names their files in `tls`.

A pair is two files of the asked machine (`config.files.pairs`), so a backup has it sealed as its key files. In a fleet
a node that runs such a proxy gets it from there (`api.cluster.links.pairs`). The private key is in no response, log or
audit entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, StrictStr

from api.call import Call, Reply
from api.engine.operation import V1, create, resource
from api.engine.responses import Moment, ResponseModel
from api.errors import Invalid
from api.store import StoreWriteError
from config.files.certificates import CertificateError
from config.files.pairs import NoRoom, Pair, keep_pair
from config.model import json_patterns
from config.model.fields import Body, Text, TextList, example
from config.net.names import is_host_name
from config.text.formatting import timestamp_text

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, GeneralName

LIFETIME = timedelta(days=90)
SLOW_CLOCKS = timedelta(days=1)
"""How long ago a new certificate begins."""
NAMES_MAX = 20
LONGEST = 32_768
"""Characters of a certificate with its chain, and of a key."""
_OF_BODY = {"cert_file": "certificate", "key_file": "private_key"}
_ASCII = r"^[\x00-\x7f]+$"
_TOO_MANY = "there are too many certificates: put further ones into files of the machine, and name those"


def _name(text: str) -> str:
    """`text`, if a certificate can be for it; else `ValueError`."""
    try:
        return str(ip_address(text))
    except ValueError:
        if not is_host_name(text):
            raise ValueError("must be a host name (IDN as xn--…) or an IP address") from None
        return text.lower()


def _pem(text: str) -> str:
    """`text`, if it can be PEM; else `ValueError`."""
    if not text.isascii():
        raise ValueError("must be PEM, which is ASCII")
    return text


class CertificateInput(Body):
    """Either `names`, for a certificate that signs itself, or a pair in PEM, whose key is not encrypted."""

    model_config = example({"names": ["proxy.example.com", "192.0.2.1"]})

    names: Annotated[list[StrictStr], TextList(NAMES_MAX, _name, json_patterns.HOST, _name, 1)] | None = None
    certificate: Annotated[StrictStr, Text(1, LONGEST, _pem, pattern=_ASCII)] | None = None
    private_key: Annotated[StrictStr, Text(1, LONGEST, _pem, pattern=_ASCII)] | None = Field(None, repr=False)


class CertificateView(ResponseModel):
    """A pair of files on the asked machine, without the key. `names` are the hosts and addresses that it is for."""

    cert_file: str
    key_file: str
    names: list[str]
    self_signed: bool
    ends_at: Moment
    sha256: str


class NewCertificate(ResponseModel):
    """A stored certificate."""

    certificate: CertificateView


def create_certificate(call: Call) -> Reply:
    """Make or upload a certificate for proxies.

    With `names` it signs itself, for a try, and is valid for 90 days; or it stores a certificate and its key in PEM.
    The files are on the asked machine, where the `tls` of a proxy can name them; the key is in no response. Other nodes
    of a fleet that run the proxy get them from there, where their data directory has the same path.
    """
    body: CertificateInput = call.body
    if (body.names is None) == (body.certificate is None):
        raise Invalid("names", "either names or a certificate must be given")
    if (body.certificate is None) != (body.private_key is None):
        raise Invalid("private_key", "is required beside certificate, and not allowed without one")
    if body.names is not None:
        pair = Pair(*_self_signed(body.names))
    else:
        pair = Pair(f"{body.certificate}\n".encode(), f"{body.private_key}\n".encode())
    found = _view(pair)
    try:
        certificate, key = keep_pair(call.services.data.keys, pair, lambda: frozenset(_used(call)))
    except CertificateError as error:
        raise Invalid(_OF_BODY[error.field], error.error) from error
    except NoRoom:
        raise Invalid(None, _TOO_MANY) from None
    except OSError as error:
        raise StoreWriteError(f"{error.filename}: {error.strerror or error}") from error
    return Reply({"certificate": {"cert_file": str(certificate), "key_file": str(key), **found}}, 201)


def _used(call: Call) -> Iterator[str]:
    """Files with certificates that something names."""
    server = call.services.settings.server.tls
    if server.cert_file is not None:
        yield str(server.cert_file)
    for each in call.services.proxies.all():
        tls = each.record.tls
        of_upstreams = (upstream.ca_file for upstream in each.record.upstreams)
        yield from filter(None, (tls and tls.cert_file, tls and tls.client_ca, *of_upstreams))


def _self_signed(names: list[str]) -> tuple[bytes, bytes]:
    """A certificate for a server with these names, and its key, in PEM."""
    from cryptography import x509  # few make one
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    private, now = generate_private_key(SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0][:64])])
    extensions: list[Any] = [
        x509.SubjectAlternativeName([_general_name(each) for each in dict.fromkeys(names)]),
        x509.BasicConstraints(ca=False, path_length=None),
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]),
        x509.SubjectKeyIdentifier.from_public_key(private.public_key()),
    ]
    builder = x509.CertificateBuilder(
        subject, subject, private.public_key(), x509.random_serial_number(), now - SLOW_CLOCKS, now + LIFETIME
    )
    for each in extensions:
        builder = builder.add_extension(each, critical=False)
    key = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return builder.sign(private, SHA256()).public_bytes(Encoding.PEM), key


def _general_name(name: str) -> GeneralName:
    from cryptography.x509 import DNSName, IPAddress

    try:
        return IPAddress(ip_address(name))
    except ValueError:
        return DNSName(name)


def _view(pair: Pair) -> dict[str, Any]:
    """What there is to know of the certificate. Raises `Invalid`."""
    from cryptography import x509
    from cryptography.hazmat.primitives.hashes import SHA256

    try:
        found = x509.load_pem_x509_certificates(pair.certificate)[0]
        return {
            "names": _names_of(found),
            "self_signed": found.issuer == found.subject,
            "ends_at": timestamp_text(found.not_valid_after_utc.timestamp()),
            "sha256": found.fingerprint(SHA256()).hex(),
        }
    except ValueError as error:
        raise Invalid("certificate", "has no certificate in PEM that can be read") from error


def _names_of(found: Certificate) -> list[str]:
    from cryptography import x509

    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, x509.DuplicateExtension, x509.UnsupportedGeneralNameType, ValueError):
        return []
    return [*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))]


ROWS = resource(f"{V1}/certificates", write="proxy.write")(
    create("", "createCertificate", create_certificate, NewCertificate, body=CertificateInput),
)
