"""Why a TLS handshake with a client failed: a reason for the record and the counters, and a sentence."""

from __future__ import annotations

import ssl

from actors.forwarding.protocols.failures import TLS_CERTIFICATE_REJECTED, TLS_HANDSHAKE_FAILED, TLS_NOT_SPOKEN, Failure

_NOT_TLS = frozenset(
    ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST", "WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE")
)
"""What OpenSSL calls first bytes that are not a ClientHello."""


def handshake_failure(error: OSError, has_received: bool) -> Failure | None:
    """The failure to record; None when TLS has no part in it, or when the client has sent nothing at all."""
    if not isinstance(error, ssl.SSLError) or not has_received:
        return None
    reason = error.reason or "UNEXPECTED_EOF_WHILE_READING"
    words = reason.lower().replace("_", " ")
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
