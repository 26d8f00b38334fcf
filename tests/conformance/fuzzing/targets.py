"""The fuzz targets by name: each takes any octets, and raises only when something is wrong with ours."""

from __future__ import annotations

from collections.abc import Callable

from tests.conformance.fuzzing.http_sides import http_requests, http_responses
from tests.conformance.fuzzing.parts import bus, chunked_bodies, client_hellos, datagrams, proxy_protocol, targets
from tests.conformance.fuzzing.socks_sides import socks4, socks5

TARGETS: dict[str, Callable[[bytes], None]] = {
    "http_requests": http_requests,
    "http_responses": http_responses,
    "chunked_bodies": chunked_bodies,
    "targets": targets,
    "socks4": socks4,
    "socks5": socks5,
    "datagrams": datagrams,
    "proxy_protocol": proxy_protocol,
    "client_hellos": client_hellos,
    "bus": bus,
}
