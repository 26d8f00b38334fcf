"""The TLS of an `https` proxy towards clients: its certificate while it runs, and why a handshake failed.

The certificate is read when it can be, and checked from time to time. What is wrong
with it is the problem `certificate`: as long as there was no good pair, clients are rejected.
"""

from __future__ import annotations

import math
import ssl

from actors.bus.loop import Loop, Timer
from actors.bus.messages.common import CERTIFICATE
from actors.forwarding.protocols.failures import (
    CLIENT_CERTIFICATE_EXPIRED,
    CLIENT_CERTIFICATE_INVALID,
    CLIENT_CERTIFICATE_MISSING,
    CLIENT_CERTIFICATE_REVOKED,
    CLIENT_CERTIFICATE_UNKNOWN_CA,
    TLS_CERTIFICATE_REJECTED,
    TLS_HANDSHAKE_FAILED,
    TLS_NOT_SPOKEN,
    Failure,
)
from actors.net.tls_stream import Certificate
from actors.problems import ActiveProblems
from config.files.certificates import CertificateError, ClientFiles

RETRY = 1.0
"""Seconds after which a pair that could not be read is tried again for a client."""
PERIOD = 30.0
"""Seconds between two checks while no client causes one."""


class CertificateWatch:
    """`use` names the files, as often as the configuration changes."""

    def __init__(self, loop: Loop, problems: ActiveProblems) -> None:
        self._loop = loop
        self._problems = problems
        self._files: tuple[str, str] | None = None
        self._clients: ClientFiles | None = None
        self._certificate: Certificate | None = None
        self._read_at = -math.inf
        self._timer: Timer | None = None

    @property
    def ends(self) -> float:
        """When the certificate that is served ends, in Unix seconds; 0 while there is none."""
        return 0.0 if self._certificate is None else self._certificate.ends

    def use(self, files: tuple[str, str] | None, clients: ClientFiles | None = None) -> None:
        """The pair is in these files, certificate and key; None: there is none. With `clients`, clients are asked for a
        certificate."""
        if (files, clients) != (self._files, self._clients):
            self._files, self._clients, self._certificate = files, clients, None
        self._read_at = -math.inf
        self._check()

    def context(self) -> ssl.SSLContext | None:
        """The context of the pair as it is now; None as long as there is none that can be used."""
        if self._certificate is None:
            self._read()
        return None if self._certificate is None else self._certificate.context(self._loop.now)

    def _check(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(PERIOD, self._check)
        if self._certificate is None:
            self._read()
        else:
            self._certificate.check()

    def _read(self) -> None:
        if self._loop.now - self._read_at < RETRY:
            return
        self._read_at = self._loop.now
        if self._files is None:
            self._report_missing("there is no certificate")
            return
        try:
            self._certificate = Certificate(*self._files, self._on_condition, self._clients)
        except CertificateError as error:
            self._report_missing(f"the certificate can't be used: {error}")
        else:
            self._problems.report_soon()  # it has an end now

    def _report_missing(self, why: str) -> None:
        self._problems.begins(CERTIFICATE, f"clients are rejected: {why}", serves=False)

    def _on_condition(self, problem: str | None) -> None:
        if problem is None:
            self._problems.ends(CERTIFICATE, "the certificate is good")
        else:
            self._problems.begins(CERTIFICATE, problem)


_NOT_TLS = frozenset(
    ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
)
"""What OpenSSL calls first bytes that are not a ClientHello."""
_VERIFIED = {
    2: CLIENT_CERTIFICATE_UNKNOWN_CA,
    10: CLIENT_CERTIFICATE_EXPIRED,
    18: CLIENT_CERTIFICATE_UNKNOWN_CA,
    19: CLIENT_CERTIFICATE_UNKNOWN_CA,
    20: CLIENT_CERTIFICATE_UNKNOWN_CA,
    21: CLIENT_CERTIFICATE_UNKNOWN_CA,
    23: CLIENT_CERTIFICATE_REVOKED,
}
"""By the result of OpenSSL's verification (`X509_V_ERR_…`): the issuer is not found, or signs itself and is unknown."""


def handshake_failure(error: OSError, has_received: bool) -> Failure | None:
    """The failure to record; None when TLS has no part in it, or when the client has sent nothing at all."""
    if not isinstance(error, ssl.SSLError) or not has_received:
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        word = _VERIFIED.get(error.verify_code, CLIENT_CERTIFICATE_INVALID)
        return _failure(word, f"the client's certificate is refused: {error.verify_message}")
    reason = error.reason or "UNEXPECTED_EOF_WHILE_READING"
    words = reason.lower().replace("_", " ")
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return _failure(CLIENT_CERTIFICATE_MISSING, "the client has shown no certificate")
    if reason in _NOT_TLS:
        http = reason in ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST")
        return _failure(TLS_NOT_SPOKEN, "the client speaks " + ("plain HTTP" if http else "something else than TLS"))
    if "ALERT" in reason and ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
        return _failure(TLS_CERTIFICATE_REJECTED, f"the client does not accept the certificate: {words}")
    if isinstance(error, ssl.SSLEOFError):
        return _failure(TLS_HANDSHAKE_FAILED, "the client ended the connection within the TLS handshake")
    return _failure(TLS_HANDSHAKE_FAILED, f"the TLS handshake failed: {words}")


def _failure(reason: str, detail: str) -> Failure:
    return Failure(400, "http_request_error", detail, close=True, rule=reason)
