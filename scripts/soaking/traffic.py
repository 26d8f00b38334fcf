"""Clients of every kind at a steady pace, each asking for bytes that it can check.

Attempts are begun at their time whether or not earlier ones are finished, up to `UNDER_WAY` for each proxy.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass

from soaking.faults import CUT, FAILED, LATE, REFUSED, SUCCEEDED, WRONG

UNDER_WAY = 60
STALL = 1.0
"""Seconds by which a client may wake too late."""
PATIENCE = 20.0
"""Seconds for one attempt; a process that hangs is killed after ten."""
SIZES = (100, 2_000, 40_000)
MOST_BYTES = 4 * max(SIZES)
"""More than one attempt moves in either direction."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One, with its monotonic times and how many bytes were on its connection."""

    proxy: str
    result: str
    begin: float
    end: float
    detail: str = ""
    sent: int = 0
    received: int = 0


class _Status(Exception):
    """A response with another status than 200."""


class _Ended(Exception):
    """The response that may end an attempt."""


@dataclass(frozen=True, slots=True)
class Target:
    """A proxy to go through, with the credentials (`name:password`), and the seconds between two attempts, if rarer.

    Of several credentials each has its turn. A response whose head has one of `may_end` is a good end of an attempt,
    too.
    """

    name: str
    protocol: str
    port: int
    credentials: str = ""
    pause: float = 0.0
    host: str = "127.0.0.1"
    in_turn: tuple[str, ...] = ()
    turn: float = 60.0
    may_end: tuple[bytes, ...] = ()

    @property
    def login(self) -> str:
        """The credentials of an attempt that begins now."""
        if not self.in_turn:
            return self.credentials
        return self.in_turn[int(time.monotonic() / self.turn) % len(self.in_turn)]


class _Wire:
    """A connection to a proxy, and how many bytes are on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, target: Target) -> None:
        self.sent = self.received = 0
        self._reader, self.writer, self._may_end = reader, writer, target.may_end
        word = b64encode(target.login.encode()).decode()
        self._field = f"Proxy-Authorization: Basic {word}\r\n" if word else ""

    def write(self, data: bytes) -> None:
        self.sent += len(data)
        self.writer.write(data)

    async def request(self, line: str, host: str) -> None:
        """And its response's head."""
        self.write(f"{line} HTTP/1.1\r\nHost: {host}\r\n{self._field}\r\n".encode())
        head = await self._reader.readuntil(b"\r\n\r\n")
        self.received += len(head)
        if any(each in head for each in self._may_end):
            raise _Ended
        if head.split(b" ", 2)[1] != b"200":
            raise _Status(head.split(b"\r\n", 1)[0].decode(errors="replace"))

    async def exactly(self, size: int) -> bytes:
        data = await self._reader.readexactly(size)
        self.received += len(data)
        return data

    async def expect(self, wanted: bytes) -> None:
        if (found := await self.exactly(len(wanted))) != wanted:
            raise ValueError(f"{found[:40]!r} in place of {wanted[:40]!r}")


class Traffic:
    """In a thread of its own, from `start` to `stop`."""

    def __init__(self, targets: list[Target], http_port: int, echo_port: int, rate: float) -> None:
        self.attempts: list[Attempt] = []
        self.stalls: list[tuple[float, float]] = []
        """When the clients themselves had no processor, by the monotonic clock: what was late then says nothing."""
        self._targets, self._http, self._echo = targets, http_port, echo_port
        self._pause = len([target for target in targets if not target.pause]) / rate
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")
        self.start = self._thread.start

    def stop(self) -> None:
        """Begin no more, and wait for those under way."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(PATIENCE + 10)

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._pace(target, group))

    async def _pace(self, target: Target, group: asyncio.TaskGroup) -> None:
        under_way: set[asyncio.Task[None]] = set()
        number, due = 0, time.monotonic()
        while not self._stopping.is_set():
            number, due = number + 1, due + (target.pause or self._pause)
            if len(under_way) < UNDER_WAY:
                task = group.create_task(self._attempt(target, number))
                under_way.add(task)
                task.add_done_callback(under_way.discard)
            slept = time.monotonic()
            wanted = max(0.0, due - slept)
            await asyncio.sleep(wanted)
            if time.monotonic() - slept - wanted > STALL:
                self.stalls.append((slept, time.monotonic()))

    async def _attempt(self, target: Target, number: int) -> None:
        begin, detail, wire = time.monotonic(), "", None
        tunnels = target.protocol.startswith("socks") or number % 3 == 0
        try:
            async with asyncio.timeout(PATIENCE):
                tls = self._tls if target.protocol == "https" else None
                ends = await asyncio.open_connection(target.host, target.port, ssl=tls, limit=1 << 18)
                wire = _Wire(*ends, target)
                await (self._tunnel if tunnels else self._get)(wire, target, SIZES[number % len(SIZES)])
            result = SUCCEEDED
        except _Ended:
            result = SUCCEEDED
        except TimeoutError:
            result = LATE
        except ConnectionRefusedError as error:
            result, detail = REFUSED, str(error)
        except _Status as error:
            result, detail = FAILED, str(error)
        except (OSError, asyncio.IncompleteReadError, ssl.SSLError) as error:
            result, detail = CUT, repr(error)
        except ValueError as error:
            result, detail = WRONG, str(error)
        sent, received = (wire.sent, wire.received) if wire else (0, 0)
        if wire:
            wire.writer.close()
        self.attempts.append(Attempt(target.name, result, begin, time.monotonic(), detail, sent, received))

    async def _get(self, wire: _Wire, _target: Target, size: int) -> None:
        """Two requests on one connection, by a name."""
        for _ in range(2):
            await wire.request(f"GET http://localhost:{self._http}/{size}", f"localhost:{self._http}")
            await wire.expect(b"x" * size)

    async def _tunnel(self, wire: _Wire, target: Target, size: int) -> None:
        """A tunnel to the echo port, and three messages through it."""
        port = self._echo.to_bytes(2, "big")
        if target.protocol == "socks4":
            wire.write(b"\x04\x01" + port + socket.inet_aton("127.0.0.1") + b"\x00")
            reply, succeeded = await wire.exactly(8), 90
        elif target.protocol == "socks5":  # RFC 1928, without credentials
            wire.write(b"\x05\x01\x00")
            await wire.expect(b"\x05\x00")
            wire.write(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + port)
            reply, succeeded = await wire.exactly(10), 0
        else:
            await wire.request(f"CONNECT 127.0.0.1:{self._echo}", f"127.0.0.1:{self._echo}")
            reply, succeeded = b"..", ord(".")
        if reply[1] != succeeded:
            raise _Status(f"reply {reply[1]} of {target.protocol}")
        message = bytes(index % 251 for index in range(size))
        for _ in range(3):
            wire.write(message)
            await wire.expect(message)


def moved(attempts: Iterable[Attempt]) -> dict[str, tuple[int, int]]:
    """The least and the most bytes that they have moved: exact but for those that broke."""
    bounds = {"bytes_in": (0, 0), "bytes_out": (0, 0)}
    for each in attempts:
        certain = each.result == SUCCEEDED
        for name, size, most in (("bytes_in", each.sent, each.sent), ("bytes_out", each.received, MOST_BYTES)):
            low, high = bounds[name]
            bounds[name] = (low + size, high + size) if certain else (low, high + most)
    return bounds
