"""One end of a TLS connection: what the other end may do to the loop."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from actors.net.tls_stream import TlsStream
from tests.kit.certificates import make_pair
from tests.kit.wait import wait_until

TICKETS = 10_000
"""Of some 250 bytes each."""


def test_a_server_that_sends_session_tickets_without_end_is_left_in_one_call(tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_pair(tmp_path))
    context.num_tickets = TICKETS
    ours, theirs = socket.socketpair()
    server = threading.Thread(target=_flood, args=(theirs, context), daemon=True)
    server.start()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    stream = TlsStream(_Endless(ours), trusting, "flood.example")
    wait_until(lambda: _done(stream), "the handshake is done")
    with pytest.raises(OSError, match="without content"):
        stream.recv(65_536)
    stream.close()
    server.join()


class _Endless(socket.socket):
    """Has always more: it waits for the other end for a moment."""

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(fileno=sock.detach())
        self.settimeout(60)


def _done(stream: TlsStream) -> bool:
    try:
        stream.handshake()
    except BlockingIOError:
        return False
    return True


def _flood(sock: socket.socket, context: ssl.SSLContext) -> None:
    """Serve a handshake, and send all tickets as fast as they are taken."""
    inward, outward = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(inward, outward, server_side=True)
    with sock:
        while True:
            try:
                tls.do_handshake()
                break
            except ssl.SSLWantReadError:
                sock.sendall(outward.read())
                inward.write(sock.recv(65_536))
        try:
            sock.sendall(outward.read())
        except OSError:
            return  # it is left
