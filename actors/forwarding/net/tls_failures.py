"""Why a TLS handshake with a client failed: a reason for the record and the counters, and a sentence."""

from __future__ import annotations

import ssl

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
