"""The replies of SOCKS: one table from failures to reply codes (RFC 1928 section 6; SOCKS4)."""

from __future__ import annotations

from actors.forwarding.protocols.failures import NO_UPSTREAM_MATCHES, NOT_THROUGH_UPSTREAMS, Failure
from actors.forwarding.protocols.socks.addresses import UNKNOWN_ADDRESS_TYPE
from actors.net.socks_wire import UNSPECIFIED, Endpoint, pack_address

GENERAL = 1
RULE = 2
NETWORK_UNREACHABLE = 3
HOST_UNREACHABLE = 4
REFUSED = 5
TIMED_OUT = 6
UNKNOWN_COMMAND_CODE = 7
UNKNOWN_ADDRESS_TYPE_CODE = 8

V4_GRANTED = 90
V4_REJECTED = 91
"""Also for what was refused because of the USERID: 92 and 93 are about identd, which is not queried here."""

UNKNOWN_COMMAND = Failure(400, "http_request_error", "the command is not supported", close=True)

_OF_FAILURE = {
    UNKNOWN_COMMAND: UNKNOWN_COMMAND_CODE,
    NOT_THROUGH_UPSTREAMS: UNKNOWN_COMMAND_CODE,
    UNKNOWN_ADDRESS_TYPE: UNKNOWN_ADDRESS_TYPE_CODE,
}
_OF_KIND = {
    "destination_ip_prohibited": RULE,
    "http_request_denied": RULE,
    "destination_ip_unroutable": NETWORK_UNREACHABLE,
    "destination_unavailable": HOST_UNREACHABLE,
    "dns_error": HOST_UNREACHABLE,
    "dns_timeout": HOST_UNREACHABLE,
    "connection_refused": REFUSED,
    "connection_timeout": TIMED_OUT,
}
"""By the error type of RFC 9209. What is not here is a general failure."""

_STATUS = {GENERAL: 502, RULE: 403, TIMED_OUT: 504, UNKNOWN_COMMAND_CODE: 400, UNKNOWN_ADDRESS_TYPE_CODE: 400}


def code_of(failure: Failure) -> int:
    """The reply code of SOCKS5 for `failure`."""
    if failure.status == 429:
        return RULE
    if failure.rule == NO_UPSTREAM_MATCHES.rule:
        return GENERAL
    return _OF_FAILURE.get(failure) or _OF_KIND.get(failure.kind, GENERAL)


def status_of(code: int) -> int:
    """The HTTP meaning of a reply code of SOCKS5 that is not success; 502 for those without one."""
    return _STATUS.get(code, 502)


def v5_granted(bound: Endpoint) -> bytes:
    """Success, with BND.ADDR and BND.PORT."""
    return b"\x05\x00\x00" + pack_address(bound)


def v5_failed(failure: Failure) -> bytes:
    """The reply for `failure`; there is no bound address then."""
    return bytes((5, code_of(failure), 0)) + pack_address(UNSPECIFIED)


def v4_granted(bound: Endpoint) -> bytes:
    """Success; an IPv6 address can't be written and becomes 0.0.0.0, "the address of this proxy"."""
    return _v4(V4_GRANTED, bound if ":" not in bound[0] else (UNSPECIFIED[0], bound[1]))


def v4_failed() -> bytes:
    """Rejected or failed; SOCKS4 has no reasons."""
    return _v4(V4_REJECTED, UNSPECIFIED)


def _v4(code: int, endpoint: Endpoint) -> bytes:
    packed = pack_address(endpoint)
    return bytes((0, code)) + packed[5:] + packed[1:5]
