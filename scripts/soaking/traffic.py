"""Clients of every kind at a steady pace, each asking for bytes that it can check.

Each attempt has a result: `succeeded`, or one of `soaking.faults`, or `wrong` when the bytes differ.
Attempts are begun at their time whether or not earlier ones are finished, up to `UNDER_WAY` for each proxy.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from asyncio import StreamReader, StreamWriter
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass

from soaking.faults import CUT, FAILED, LATE, REFUSED

SUCCEEDED, WRONG = "succeeded", "wrong"
UNDER_WAY = 60
PATIENCE = 20.0
"""Seconds for one attempt; a process that hangs is killed after ten."""
SIZES = (100, 2_000, 40_000)
MOST_BYTES = 4 * max(SIZES)
"""More than one attempt moves in either direction."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One, with its monotonic times."""

    proxy: str
    result: str
    begin: float
    end: float
    detail: str = ""
    sent: int = 0
    received: int = 0


class _Status(Exception):
    """A response with another status than 200."""


@dataclass(frozen=True, slots=True)
class Target:
    """A proxy to go through, with the credentials (`name:password`), and the seconds between two attempts, if rarer."""

    name: str
    protocol: str
    port: int
    credentials: str = ""
    pause: float = 0.0

    @property
    def field(self) -> str:
        """The header field with the credentials."""
        word = b64encode(self.credentials.encode()).decode()
        return f"Proxy-Authorization: Basic {word}\r\n" if word else ""


class Wire:
    """A connection to a proxy, and how many bytes are on it."""

    def __init__(self) -> None:
        self.sent = self.received = 0
        self._reader: StreamReader | None = None
        self._writer: StreamWriter | None = None

    async def connect(self, port: int, tls: ssl.SSLContext | None) -> None:
        """Before all else."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, limit=1 << 18)

    def write(self, data: bytes) -> None:
        """Send it."""
        assert self._writer is not None
        self.sent += len(data)
        self._writer.write(data)

    async def head(self) -> bytes:
        """Up to an empty line."""
        assert self._reader is not None
        data = await self._reader.readuntil(b"\r\n\r\n")
        self.received += len(data)
        return data

    async def exactly(self, size: int) -> bytes:
        """So many bytes."""
        assert self._reader is not None
        data = await self._reader.readexactly(size)
        self.received += len(data)
        return data

    def close(self) -> None:
        """At any time."""
        if self._writer is not None:
            self._writer.close()


Through = Callable[[Wire, Target, int], Awaitable[None]]


class Traffic:
    """In a thread of its own, from `start` to `stop`."""

    def __init__(self, targets: list[Target], http_port: int, echo_port: int, rate: float) -> None:
        self.attempts: list[Attempt] = []
        self.held_back = 0
        self._targets, self._http, self._echo = targets, http_port, echo_port
        self._pause = len([target for target in targets if not target.pause]) / rate
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._tls.check_hostname, self._tls.verify_mode = False, ssl.CERT_NONE
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), name="traffic")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

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
            else:
                self.held_back += 1
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _attempt(self, target: Target, number: int) -> None:
        through: Through = self._tunnel if target.protocol.startswith("socks") or number % 3 == 0 else self._get
        begin, detail, wire = time.monotonic(), "", Wire()
        try:
            async with asyncio.timeout(PATIENCE):
                await wire.connect(target.port, self._tls if target.protocol == "https" else None)
                await through(wire, target, SIZES[number % len(SIZES)])
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
        finally:
            wire.close()
        end = time.monotonic()
        self.attempts.append(Attempt(target.name, result, begin, end, detail, wire.sent, wire.received))

    # --- one attempt ---

    async def _get(self, wire: Wire, target: Target, size: int) -> None:
        """Two requests on one connection, by a name."""
        where = f"localhost:{self._http}"
        for _ in range(2):
            wire.write(f"GET http://{where}/{size} HTTP/1.1\r\nHost: {where}\r\n{target.field}\r\n".encode())
            _expect_200(await wire.head())
            _expect_all(await wire.exactly(size), b"x" * size)

    async def _tunnel(self, wire: Wire, target: Target, size: int) -> None:
        """A tunnel to the echo port, and three messages through it."""
        await getattr(self, f"_open_{target.protocol}")(wire, target)
        message = bytes(index % 251 for index in range(size))
        for _ in range(3):
            wire.write(message)
            _expect_all(await wire.exactly(size), message)

    async def _open_http(self, wire: Wire, target: Target) -> None:
        where = f"127.0.0.1:{self._echo}"
        wire.write(f"CONNECT {where} HTTP/1.1\r\nHost: {where}\r\n{target.field}\r\n".encode())
        _expect_200(await wire.head())

    _open_https = _open_http

    async def _open_socks5(self, wire: Wire, _target: Target) -> None:
        """RFC 1928, without credentials."""
        wire.write(b"\x05\x01\x00")
        _expect_all(await wire.exactly(2), b"\x05\x00")
        wire.write(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + self._echo.to_bytes(2, "big"))
        reply = await wire.exactly(10)
        if reply[1] != 0:
            raise _Status(f"SOCKS5 reply {reply[1]}")

    async def _open_socks4(self, wire: Wire, _target: Target) -> None:
        wire.write(b"\x04\x01" + self._echo.to_bytes(2, "big") + socket.inet_aton("127.0.0.1") + b"\x00")
        reply = await wire.exactly(8)
        if reply[1] != 90:
            raise _Status(f"SOCKS4 reply {reply[1]}")


def moved(attempts: Iterable[Attempt]) -> dict[str, tuple[int, int]]:
    """The least and the most bytes that they have moved: exact but for those that broke."""
    bounds = {"bytes_in": (0, 0), "bytes_out": (0, 0)}
    for each in attempts:
        certain = each.result == SUCCEEDED
        for name, size, most in (("bytes_in", each.sent, each.sent), ("bytes_out", each.received, MOST_BYTES)):
            low, high = bounds[name]
            bounds[name] = (low + size, high + size) if certain else (low, high + most)
    return bounds


def _expect_200(head: bytes) -> None:
    status = head.split(b" ", 2)[1]
    if status != b"200":
        raise _Status(head.split(b"\r\n", 1)[0].decode(errors="replace"))


def _expect_all(found: bytes, wanted: bytes) -> None:
    if found != wanted:
        raise ValueError(f"{found[:40]!r} in place of {wanted[:40]!r}")
