"""TLS to an `https` upstream: the client's end of a `TlsStream`, and the contexts for it.

The upstream's certificate is verified against the system's authorities or those of `ca_file`, for `server_name` or else
the host as it is configured; `verify: false` accepts any. TLS 1.2 and newer, ALPN `http/1.1`.
"""

from __future__ import annotations

import ssl

from actors.bus.messages.specs import UpstreamSpec
from actors.forwarding.upstreams.handshake import unusable
from actors.net.tls_stream import TlsStream


class UpstreamStream(TlsStream):
    """A TLS connection to an upstream. `handshake` comes first, and bytes may be put back."""

    __slots__ = ()

    def unread(self, data: bytes) -> None:
        """Put bytes back, to be returned first by the next `recv`."""
        self._early.insert(0, data)


def context_for(spec: UpstreamSpec) -> ssl.SSLContext:
    """A context for connections to this upstream. Raises `UpstreamFailed` when `ca_file` can't be used."""
    try:
        context = ssl.create_default_context(cafile=spec.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise unusable(f"ca_file {spec.ca_file} can't be used: {error}", "proxy_configuration_error") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not spec.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
