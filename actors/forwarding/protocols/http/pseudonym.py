"""How a proxy calls itself in `Via` (RFC 9110 7.6.3).

It knows itself by its pseudonym alone: by host name and port, two machines of one name in a chain would be a loop.
"""

from __future__ import annotations

import re
import socket

from actors.bus.messages.specs import ProxySpec
from actors.forwarding.protocols.failures import PROXY_NAME

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")


def pseudonym_of(spec: ProxySpec) -> bytes:
    """The name that this proxy has, and no other."""
    return f"{PROXY_NAME}-{spec.id[-8:]}".encode()


def received_by(spec: ProxySpec) -> bytes:
    """What stands behind the version in the proxy's entry, as `headers.via` says; empty when it adds no entry."""
    pseudonym = pseudonym_of(spec)
    if spec.via == "off":
        return b""
    machine = socket.gethostname().encode("ascii", "replace") if spec.via == "on" else b""
    if not _TOKEN.fullmatch(machine):  # the field's grammar has no other host names
        return pseudonym
    return b"%b:%d (%b)" % (machine, spec.port, pseudonym)
