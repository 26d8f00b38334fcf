"""`proxyfleet certificates …`: certificates for proxies that speak TLS, stored on the product's machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.cli.commands import Given, Session, command, new_group
from api.cli.documents import body_of
from api.cli.options import argument
from api.cli.terminal import pairs_of

certificates = new_group("certificates", "Certificates of proxies.")

_NAMES = {"names": argument("NAME", "Host names and addresses that it is for.", list[str])}
_PAIR = {
    "certificate": argument("CERTIFICATE", "A file in PEM: the certificate, and its chain behind it.", Path),
    "private_key": argument("KEY", "A file in PEM: its key, not encrypted; - is standard input.", Path),
}
_DETAILS = ("names", ("signs itself", "self_signed"), ("ends", "ends_at"), "sha256", "cert_file", "key_file")


@command(certificates, "create", _NAMES)
def create_certificate(session: Session, fields: Given) -> None:
    """Make a certificate that signs itself, for a try: it is valid for 90 days."""
    _store(session, fields)


@command(certificates, "upload", _PAIR)
def upload_certificate(session: Session, fields: Given) -> None:
    """Store a certificate and its key, for proxies that name their files."""
    _store(session, body_of(fields))


def _store(session: Session, body: dict[str, Any]) -> None:
    data = session.api.post("/certificates", body)
    session.out.data(data, lambda: session.out.details(pairs_of(data["certificate"], _DETAILS)))
