"""Where the corpus began: the named cases of the tests, in the layout of the targets' inputs."""

from __future__ import annotations

from actors.bus.codec import Envelope, EnvelopeRole, encode
from actors.bus.messages.common import Done, Stop
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import AccessSpec, EgressSpec, ProxySpec
from actors.net.proxy_protocol import LOCAL_V2, build_v1, build_v2
from tests.conformance.fuzzing.input import write_input
from tests.conformance.smuggling import CHUNKED_BODIES, REQUESTS, RESPONSES
from tests.kit.client_hellos import records, samples, taken_apart

_V4 = b"\x04\x01\x01\xbb\x5d\xb8\xd8\x22"
_V4A = b"\x04\x01\x01\xbb\0\0\0\x05"
_TO_V4, _TO_V6, _TO_NAME = b"\x01\x5d\xb8\xd8\x22\x01\xbb", b"\x04" + bytes(range(32, 48)) + b"\0P", b"\x03\x01a\0P"
_ALICE = b"\x01\x05alice\x02pw"
_TARGETS = [
    "http://a.example/x?y#z http://a.example:8080 http://[2001:db8::1]:1/ http://u@a.example/ a.example:443 127.1:80",
    "192.0.2.7:1 [::ffff:1.2.3.4]:5 0x7f.1:80 2130706433:80 0177.0.0.1:1 a..b:1 -a_b.:65535 ::1 http://a.example?x",
]
_ENDS = [(("192.0.2.7", 1), ("192.0.2.8", 65535)), (("2001:db8::1", 2), ("::1", 3)), (("192.0.2.7", 1), ("::1", 3))]
_PROXY = ProxySpec("p1", "p", "::1", 1, "http", True, 1, 30.0, True, 9, None, None, ("c", "k"), AccessSpec(("::/0",)))
_MESSAGES = [Done(), Stop(10.0), Configure(_PROXY, EgressSpec("off", ("::1/128",), (("::1", 1),)))]
_ADDRESSES = (_TO_V4, _TO_V6, _TO_NAME)
_PLAIN, _WITH_PASSWORD = b"\x05\x01\0", b"\x05\x02\0\x02" + _ALICE

SEEDS: dict[str, list[bytes]] = {
    "http_requests": [write_input(data, flags) for data in REQUESTS.values() for flags in (0, 3)]
    + [write_input(data, 64) for data in list(REQUESTS.values())[::10]],
    "http_responses": [write_input(data, flags) for data in RESPONSES.values() for flags in (0, 1, 2, 4)]
    + [write_input(data, 64) for data in list(RESPONSES.values())[::10]],
    "chunked_bodies": [write_input(data, flags) for data in CHUNKED_BODIES.values() for flags in (0, 64)],
    "targets": [target.encode() for line in _TARGETS for target in line.split()],
    "socks4": [
        write_input(data, flags)
        for data in (_V4 + b"\0", _V4 + b"alice\0early", _V4A + b"alice\0a.example\0x", b"\x04\x02" + _V4[2:] + b"\0")
        for flags in (0, 1, 3, 4, 8)
    ],
    "socks5": [
        write_input(greeting + b"\x05" + command + b"\0" + address + b"early", flags)
        for greeting, flags in (
            (b"\x05\x01\0", 0),
            (b"\x05\x02\0\x02" + _ALICE, 1),
            (b"\x05\x01\0", 4),
            (b"\x05\x01\0", 8),
        )
        for command in (b"\x01", b"\x02", b"\x03", b"\x04")
        for address in _ADDRESSES
    ],
    "datagrams": [b"\0\0" + fragment + address + b"data" for fragment in (b"\0", b"\x01") for address in _ADDRESSES],
    "proxy_protocol": [
        LOCAL_V2,
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ::1 ::1 1 2\r\n",
        *(build_v1(*ends) for ends in _ENDS),
        *(build_v2(*ends, checksum=checksum) for ends in _ENDS for checksum in (False, True)),
    ],
    "client_hellos": [
        write_input(data)
        for sample in samples()[::6]
        for data in (
            sample.octets,
            records(sample.message, 99),
            records(taken_apart(sample.message).only({0, 16, 43}).message()),
        )
    ],
    "bus": [encode(Envelope(message, 7, role)) for message in _MESSAGES for role in EnvelopeRole],
}
"""Octets for each target."""
