"""A relay whose connections can be held up, delayed, cut or refused while it runs: a bad network, each way by itself.

    with GatedRelay(server.port, role_of) as relay:
        relay.gates["pf_nod_1"] = Gate(to_client=False)  # what it asks arrives, and no response
        relay.gates.clear()                              # what waited goes on

Held octets are not lost, as with a cable that is plugged in again.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

ALL = "*"
"""The gate of connections that have none of their own."""
_LOOK = 0.05
_FIRST = 8192


@dataclass(frozen=True, slots=True)
class Gate:
    """What becomes of octets: they pass each way or wait, so many seconds late; connections are refused."""

    to_server: bool = True
    to_client: bool = True
    late: float = 0.0
    refuses: bool = False


HOLD, REFUSE = Gate(to_server=False, to_client=False), Gate(refuses=True)
_OPEN = Gate()


def role_of(first: bytes) -> str:
    """The role that a connection to PostgreSQL is of, by its first message."""
    parts = first[8:].split(b"\0")
    return dict(zip(parts[::2], parts[1::2], strict=False)).get(b"user", b"").decode()


class GatedRelay:
    """Relays from a port of its own to `target`, a port on loopback that may change. Gates are by what `whose` says."""

    def __init__(self, target: int, whose: Callable[[bytes], str] = lambda _first: "") -> None:
        self.target = target
        self.gates: dict[str, Gate] = {}
        self._whose = whose
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port: int = self._listener.getsockname()[1]
        self._pairs: set[_Pair] = set()
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._listener.close()
        self.cut()

    def cut(self, whose: str = ALL) -> None:
        """End the connections of one, or all."""
        for pair in [*self._pairs]:
            if whose in (ALL, pair.whose):
                pair.close()

    def _gate(self, pair: _Pair) -> Gate:
        return self.gates.get(pair.whose) or self.gates.get(ALL) or _OPEN

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._begin, args=[client], daemon=True).start()

    def _begin(self, client: socket.socket) -> None:
        pair = _Pair(client)
        try:
            first = client.recv(_FIRST)
            pair.whose = self._whose(first)
            self._pairs.add(pair)
            if not first or self._gate(pair).refuses:
                return
            self._wait(pair, lambda gate: gate.to_server)
            pair.server = socket.create_connection(("127.0.0.1", self.target), 5)
            pair.server.settimeout(None)
            pair.server.sendall(first)
            threading.Thread(target=self._pump, args=[pair, client, pair.server, True], daemon=True).start()
            self._pump(pair, pair.server, client, False)
        except OSError:
            return
        finally:
            self._pairs.discard(pair)
            pair.close()

    def _pump(self, pair: _Pair, source: socket.socket, target: socket.socket, to_server: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                self._wait(pair, lambda gate: gate.to_server if to_server else gate.to_client)
                target.sendall(data)
        pair.close()

    def _wait(self, pair: _Pair, passes: Callable[[Gate], bool]) -> None:
        time.sleep(self._gate(pair).late)
        while not passes(self._gate(pair)) and not pair.is_closed:
            time.sleep(_LOOK)


class _Pair:
    def __init__(self, client: socket.socket) -> None:
        self.whose, self.client = "", client
        self.server: socket.socket | None = None
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True
        for each in (self.client, self.server):
            if each is not None:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
                each.close()
