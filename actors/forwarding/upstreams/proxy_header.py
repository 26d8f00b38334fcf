"""The PROXY protocol header that an upstream gets which wants the client's address."""

from __future__ import annotations

from actors.net.proxy_protocol import Ends, build_v1, build_v2

_OF_OUR_OWN = {
    "v1": b"PROXY UNKNOWN\r\n",
    "v2": b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0",  # LOCAL: there is no client behind it
}


def preface_for(version: str | None, ends: Ends | None) -> bytes:
    """The header in this version, empty for None; without `ends` the one for connections of the proxy itself."""
    if version is None:
        return b""
    if ends is None:
        return _OF_OUR_OWN[version]
    return build_v1(*ends) if version == "v1" else build_v2(*ends)
