"""OpenBSD's netcat ends its sending direction and then receives the response: half-close through every kind of
tunnel."""

from __future__ import annotations

import hashlib
import os
import socket

import pytest

from tests.kit.http_origins import scripted
from tests.product.e2e.foreign.entrances import MakeEntrance
from tests.product.e2e.foreign.programs import needs, run

pytestmark = [pytest.mark.product, needs("nc.openbsd")]

MODES = {"http": "connect", "socks4": "4", "socks5": "5"}


def digest(connection: socket.socket) -> None:
    """All that comes is hashed; the hash is the answer, once the end has come."""
    seen = hashlib.sha256()
    while data := connection.recv(65536):
        seen.update(data)
    connection.sendall(seen.hexdigest().encode())


@pytest.mark.parametrize("scheme", MODES)
def test_the_end_of_what_is_sent_passes_and_the_answer_comes_back(entrance: MakeEntrance, scheme: str) -> None:
    proxy = entrance(scheme)
    body = os.urandom(1_000_000)
    with scripted(digest) as port:
        way = ("-N", "-X", MODES[scheme], "-x", f"127.0.0.1:{proxy.port}")
        done = run("nc.openbsd", *way, "127.0.0.1", str(port), stdin=body)
    assert done.stdout == hashlib.sha256(body).hexdigest()
    (record,) = proxy.records(1)
    assert (record["target_url"], record["reason"]) == (f"127.0.0.1:{port}", "")
    assert record["bytes_in"] > len(body)
