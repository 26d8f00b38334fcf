"""OpenSSL's server as the reference for names in ClientHellos: what it would act on, beside what ours reads.

The condition that matters: ours never reads another name than the one that OpenSSL acts on. Both refuse the same, but
for these differences:

- ours refuses more: `STRICTER` says what, by the text of the error;
- OpenSSL refuses more, for what ours doesn't read: versions and suites that it doesn't support, and the values of other
  extensions. Without those it reads the same name.
"""

from __future__ import annotations

import ssl
import sys
import warnings
from functools import cache
from typing import Any

from actors.net.client_hello import NAME_MAX, BadHello, ClientHello, HelloReader
from tests.kit.client_hellos import ALPN, SERVER_NAME, SUPPORTED_VERSIONS, taken_apart

STRICTER = (
    "is there twice",  # where OpenSSL doesn't know the extension
    "octets of a further message",
    "a record of type",  # alerts that are warnings, also before the hello
    "a handshake record has 0 octets",  # up to 32 of them
    f"octets, not 39 to {16_384}",  # 131,396 are its limit
)
UNSUPPORTED = {
    "UNSUPPORTED_PROTOCOL",
    "VERSION_TOO_LOW",
    "NO_SHARED_CIPHER",
    "INAPPROPRIATE_FALLBACK",
    "SCSV_RECEIVED_WHEN_RENEGOTIATING",
}
"""Reasons of OpenSSL that are of its settings, not of the form."""
MORE = "more"
Verdict = tuple[str, str]
"""`("name", NAME)`, `("refused", REASON)` or `(MORE, "")`."""


def openssl(stream: bytes) -> Verdict:
    """What OpenSSL's server makes of a client's first octets, to the point where it chooses by the name."""
    names = _names()
    names.clear()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    incoming.write(stream)
    before, sys.unraisablehook = sys.unraisablehook, _keep_undecoded
    try:
        _context().wrap_bio(incoming, outgoing, server_side=True).do_handshake()
    except ssl.SSLWantReadError:
        return MORE, ""
    except ssl.SSLError as error:
        return ("name", names[0]) if names else ("refused", error.reason or str(error))
    finally:
        sys.unraisablehook = before
    raise AssertionError("a handshake without keys")


@cache
def _names() -> list[str]:
    return []


@cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.sni_callback = _keep
    return context


def _keep(_tls: ssl.SSLObject, name: str | None, _context: ssl.SSLContext) -> int:
    _names().append(name or "")
    return int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)


def _keep_undecoded(unraisable: Any) -> None:
    """Python gives the callback no names that aren't ASCII, but reports them here."""
    assert isinstance(unraisable.object, bytes), unraisable
    _names().append(unraisable.object.decode("latin-1"))


def ours(pieces: list[bytes]) -> ClientHello | BadHello | None:
    """What the reader says in the end."""
    reader = HelloReader()
    hello = None
    try:
        for piece in pieces:
            hello = reader.feed(piece)
    except BadHello as error:
        return error
    assert reader.data == b"".join(pieces)
    return hello


def as_ours(name: str) -> str:
    """OpenSSL's name in the form that ours has it."""
    octets = name.encode("latin-1").lower()
    octets = octets[:-1] if octets.endswith(b".") and not octets.endswith(b"..") else octets
    text = "".join(chr(octet) if 0x20 < octet < 0x7F and octet != 0x5C else f"\\x{octet:02x}" for octet in octets)
    return text[:NAME_MAX]


def check(stream: bytes) -> str:
    """Compare both; returns what it came to, for counting. Raises `AssertionError` for a difference."""
    found, (kind, said) = ours([stream]), openssl(stream)
    context = f"{found!r}, OpenSSL {kind} {said!r}: {stream.hex()}"
    if isinstance(found, BadHello):
        assert kind == "refused" or any(each in str(found) for each in STRICTER) or _is_early(kind, stream), context
        return "refused"
    if found is None:
        assert kind != "name", context
        return MORE
    if kind == "name":
        assert found.name == ("" if found.version == "ssl3" else as_ours(said)), context
        return "name"
    assert kind == "refused", context
    if said not in UNSUPPORTED:
        message = b"".join(_fragments(stream[: found.size]))
        kept = taken_apart(message).only({SERVER_NAME, ALPN, SUPPORTED_VERSIONS})
        kind, said = openssl(kept.octets())
        if said not in UNSUPPORTED:
            assert (kind, as_ours(said)) == ("name", found.name), f"{context}, then {kind} {said!r}"
    return "name, refused"


def _is_early(kind: str, stream: bytes) -> bool:
    """Ours refuses with the first wrong octet, OpenSSL when the record is whole."""
    return kind == MORE and openssl(stream + bytes(2 * 16_384))[0] == "refused"


def _fragments(stream: bytes) -> list[bytes]:
    fragments = []
    while stream:
        end = 5 + int.from_bytes(stream[3:5], "big")
        fragments.append(stream[5:end])
        stream = stream[end:]
    return fragments
