from __future__ import annotations

import socket

import pytest

from actors.net.accepting import accept


@pytest.mark.parametrize(("host", "family"), [("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)])
def test_an_accepted_connection_is_as_the_standard_library_makes_it(host: str, family: socket.AddressFamily) -> None:
    with socket.create_server((host, 0), family=family) as listener:
        address = listener.getsockname()[:2]
        with socket.create_connection(address) as first:
            ours, peer = accept(listener)
            with ours, socket.create_connection(address) as second:
                theirs, other_peer = listener.accept()
                with theirs:
                    assert (peer, other_peer) == (first.getsockname(), second.getsockname())
                    assert (ours.family, ours.type, ours.proto) == (theirs.family, theirs.type, theirs.proto)
                    assert (ours.getsockname(), ours.getpeername()) == (listener.getsockname(), peer)
                    assert ours.get_inheritable() is theirs.get_inheritable() is False
                    first.sendall(b"x")
                    assert ours.recv(1) == b"x"


def test_without_a_client_it_raises_as_the_standard_library_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        with pytest.raises(BlockingIOError):
            accept(listener)
