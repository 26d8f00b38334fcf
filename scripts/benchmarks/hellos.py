"""The name in a TLS handshake: what reading a ClientHello costs, beside OpenSSL's server up to its callback for names.

The hellos are those of real clients that the tests of the parser have, the largest and the first of some clients.
"""

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

from actors.net.client_hello import HelloReader
from benchmarks.report import Bar, Row

FILE = Path(__file__).parents[2] / "tests" / "unit" / "actors" / "forwarding" / "client_hellos.json"
CLIENTS = ("Chromium", "curl", "Go")
MOST = 8.0
"""Microseconds for a hello in one piece, compiled."""
ROUND = 100
"""Hellos of which a time is taken; the figure is that of the best round, since other load only adds."""


def measure(hellos: int) -> list[Row]:
    """The rows."""
    rows = []
    for client in CLIENTS:
        octets = _largest(client)
        size = f"{client}'s hello of {len(octets):,} octets"
        ours, openssl = _best(partial(_read, octets), hellos), _best(partial(_accept, octets), hellos)
        rows.append(Row(size, "us", ours, "openssl", openssl, bar=Bar(MOST)))
        rows.append(Row(f"{size}, octet by octet", "us", _best(partial(_read_bytewise, octets), hellos // 100)))
    return rows


def _largest(client: str) -> bytes:
    rows = json.loads(FILE.read_text(encoding="utf-8"))["hellos"]
    return max((base64.b64decode(row["hello"]) for row in rows if row["client"].startswith(f"{client},")), key=len)


def _best(once: Callable[[], None], times: int) -> float:
    """Microseconds of CPU."""
    best = float("inf")
    for _ in range(max(1, times // ROUND)):
        began = time.process_time()
        for _ in range(ROUND):
            once()
        best = min(best, time.process_time() - began)
    return best / ROUND * 1e6


def _read(octets: bytes) -> None:
    assert HelloReader().feed(octets) is not None


def _read_bytewise(octets: bytes) -> None:
    reader = HelloReader()
    for at in range(len(octets)):
        reader.feed(octets[at : at + 1])


def _accept(octets: bytes) -> None:
    incoming = ssl.MemoryBIO()
    incoming.write(octets)
    server = _SERVER.wrap_bio(incoming, ssl.MemoryBIO(), server_side=True)
    with suppress(ssl.SSLError):
        server.do_handshake()


def _refuse(_tls: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> int:
    return int(ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME)


_SERVER = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
_SERVER.sni_callback = _refuse
