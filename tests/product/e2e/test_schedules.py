"""Windows of accounts on the days on which clocks go forward and back: open tunnels end with them."""

from __future__ import annotations

import base64
import contextlib
import socket
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.kit.faked_clock import INSTALLED, FakedClock
from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, echoes
from tests.kit.wait import wait_until

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(not INSTALLED, reason="libfaketime is not installed"),
]

WORD = "ada's long word"
NIGHT = {"timezone": "Europe/Berlin", "windows": [{"days": ["sun"], "from": "00:00", "to": "02:30"}]}
"""On the last Sunday of March there is no 02:30, and on that of October there are two."""


class Night:
    """A product with an account of this schedule, whose clock the test sets (UTC)."""

    def __init__(self, product: Product, clock: FakedClock, origin: Origin) -> None:
        self.product, self.clock, self.origin = product, clock, origin
        self.proxy = product.proxy(auth={"enabled": True})
        product.data("POST", "/accounts", {"username": "ada", "password": WORD, "schedule": NIGHT})

    def set(self, *moment: int) -> None:
        """Year, month, day, hour and so on."""
        self.clock.set(round(datetime(*moment, tzinfo=UTC).timestamp() - time.time()))  # type: ignore[misc,arg-type]
        self.product.forget_token()

    def tunnel(self) -> tuple[socket.socket, bytes]:
        """A connection of ada, and the head of the response to CONNECT."""
        word = base64.b64encode(f"ada:{WORD}".encode()).decode()
        sock = socket.create_connection(("127.0.0.1", self.proxy["port"]), 30)
        head = f"CONNECT {self.origin.authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n\r\n"
        sock.sendall(head.encode())
        return sock, sock.recv(4096)

    def opened(self) -> socket.socket:
        sock, head = self.tunnel()
        assert b" 200 " in head, head
        return sock

    def refused(self) -> bool:
        sock, head = self.tunnel()
        sock.close()
        return b"rule=outside_schedule" in head

    def ended_at(self, sock: socket.socket) -> str:
        """When the tunnel ends by itself: hour and minute of the product's clock, UTC."""
        with contextlib.suppress(ConnectionResetError):
            assert not sock.recv(100)
        sock.close()
        return f"{datetime.fromtimestamp(self.clock.now(), UTC):%H:%M}"

    def has_record(self) -> bool:
        """Whether a tunnel of today has ended with the reason."""
        found: list[dict[str, Any]] = self.product.data("GET", "/logs?reason=outside_schedule&method=CONNECT")["logs"]
        today = f"{datetime.fromtimestamp(self.clock.now(), UTC):%Y-%m}"
        return any(each["status_code"] == 200 and each["timestamp"].startswith(today) for each in found)

    def restart(self) -> None:
        """Records have the time of the start of the proxy's process, and on from there."""
        self.product.data("POST", f"/proxies/{self.proxy['id']}/restart")
        wait_until(lambda: self.state() == "running", "the proxy runs again")

    def state(self) -> str:
        proxy: dict[str, Any] = self.product.data("GET", f"/proxies/{self.proxy['id']}")["proxy"]
        return str(proxy["runtime"]["state"])


def echo(sock: socket.socket, data: bytes) -> None:
    sock.sendall(data)
    assert sock.recv(100) == data


def test_tunnels_end_with_their_window_on_the_days_on_which_clocks_change(tmp_path: Path) -> None:
    clock = FakedClock(tmp_path / "clock")
    clock.set(round(datetime(2027, 3, 27, 22, 30, tzinfo=UTC).timestamp() - time.time()))
    with Product(clock.environment()) as product, Origin(echoes) as origin:
        night = Night(product, clock, origin)
        assert night.refused()  # 23:30 on Saturday there
        night.set(2027, 3, 28, 0, 20)
        sock = night.opened()
        night.set(2027, 3, 28, 0, 59, 54)
        echo(sock, b"01:59, before the clock goes to 03:00")
        assert night.ended_at(sock) == "01:00"
        assert night.refused()
        wait_until(night.has_record, "the tunnel has a record with the reason")
        night.set(2027, 10, 31, 0, 20)
        night.restart()
        sock = night.opened()
        night.set(2027, 10, 31, 0, 31)
        night.opened().close()
        echo(sock, b"02:31 for the first time")
        night.set(2027, 10, 31, 1, 29, 54)
        echo(sock, b"02:29 for the second time")
        assert night.ended_at(sock) == "01:30"
        assert night.refused()
        wait_until(night.has_record, "the tunnel has a record with the reason")
