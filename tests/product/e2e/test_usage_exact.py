"""The usage of an account over several proxies, to the byte through kills; and a quota that proxies race for."""

from __future__ import annotations

import base64
import os
import signal
import socket
import sqlite3
import threading
from contextlib import ExitStack, suppress
from typing import Any

import psutil
import pytest

from tests.kit.product import Product
from tests.kit.scripted_origins import Origin, echoes
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target
from tests.kit.workers import all_run

pytestmark = pytest.mark.product

WORD = "ada's long word"
MIB = 1 << 20
PROXIES = 4


def make_account(product: Product, **fields: Any) -> str:
    body = {"username": "ada", "password": WORD, "proxies": {"all": True}, **fields}
    return str(product.data("POST", "/accounts", body)["account"]["id"])


def guarded_proxies(product: Product, count: int) -> list[dict[str, Any]]:
    return [product.proxy(auth={"enabled": True}) for _ in range(count)]


def used(product: Product, account_id: str) -> tuple[int, int]:
    """What the collector has on disk, in and out."""
    with sqlite3.connect(f"file:{product.data_dir}/metrics/usage.sqlite?mode=ro", uri=True) as database:
        row = database.execute("SELECT total_in, total_out FROM accounts WHERE id = ?", (account_id,)).fetchone()
    return row or (0, 0)


def in_hours(product: Product, account_id: str) -> tuple[int, int]:
    with sqlite3.connect(f"file:{product.data_dir}/metrics/usage.sqlite?mode=ro", uri=True) as database:
        sums = (
            "SELECT sum(bytes_in), sum(bytes_out) FROM hours WHERE account = (SELECT number FROM accounts WHERE id = ?)"
        )
        bytes_in, bytes_out = database.execute(sums, (account_id,)).fetchone()
    return bytes_in, bytes_out


class Client:
    """A tunnel to an origin that echoes; `sent` and `received` are all bytes between client and proxy."""

    def __init__(self, proxy: dict[str, Any], origin: Origin, user: str = "ada") -> None:
        word = base64.b64encode(f"{user}:{WORD}".encode()).decode()
        head = f"CONNECT {origin.authority} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n\r\n".encode()
        self.sock = socket.create_connection(("127.0.0.1", proxy["port"]), 20)
        self.sent = self.received = 0
        self.send(head)
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += self.receive()
        assert reply.startswith(b"HTTP/1.1 200 "), reply

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)
        self.sent += len(data)

    def receive(self) -> bytes:
        data = self.sock.recv(65536)
        assert data, "the proxy has closed the tunnel"
        self.received += len(data)
        return data

    def echo(self, size: int) -> None:
        """Send so many bytes, and read them back."""
        missing = size
        self.send(b"x" * size)
        while missing:
            missing -= len(self.receive())


def test_every_byte_counts_once_though_forwarding_actors_the_collector_and_all_are_killed(own_product: Product) -> None:
    product = own_product
    account_id = make_account(product)
    proxies = guarded_proxies(product, 2)
    sent = received = 0

    def kill_proxies() -> None:
        for each in proxies:
            os.kill(product.data("GET", f"/proxies/{each['id']}")["proxy"]["runtime"]["pid"], signal.SIGKILL)

    def kill_collector() -> None:
        product.actor("metrics").kill()

    def kill_all() -> None:
        product.kill_all()
        product.start()

    def restart() -> None:
        assert product.stop() == 0
        product.start()

    with Origin(echoes) as origin:
        for disturb in (kill_proxies, kill_collector, kill_all, restart, kill_proxies):
            for each in proxies:
                client = wait_until(lambda each=each: connected(each, origin), "the proxy serves")  # type: ignore[misc]
                client.echo(10_001)
                sent, received = sent + client.sent, received + client.received
                with client.sock:
                    disturb() if each is proxies[-1] else None
    wait_until(lambda: used(product, account_id) == (sent, received), f"{sent} and {received} bytes")
    assert in_hours(product, account_id) == (sent, received)


def connected(proxy: dict[str, Any], origin: Origin) -> Client | None:
    try:
        return Client(proxy, origin)
    except OSError:
        return None


def race(clients: list[Client]) -> None:
    """Send and receive at all of them until each has been ended."""
    piece = b"x" * 65536

    def use_up(client: Client) -> None:
        try:
            while client.sock.recv(MIB):
                continue
        except OSError:
            return

    def push(client: Client) -> None:
        try:
            while True:
                client.sock.sendall(piece)
        except OSError:
            return

    threads = [threading.Thread(target=what, args=(each,)) for each in clients for what in (push, use_up)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)


def test_proxies_that_race_for_a_quota_stay_within_a_mebibyte_together_of_it(own_product: Product) -> None:
    product = own_product
    quota = 32 * MIB
    account_id = make_account(product, quota={"bytes": quota})
    proxies = guarded_proxies(product, PROXIES)
    with Origin(echoes) as origin, ExitStack() as stack:
        clients = [Client(each, origin) for each in proxies]
        for each in clients:
            stack.enter_context(each.sock)
        race(clients)
    total = wait_until(lambda: (now := sum(used(product, account_id))) >= quota and now, "the quota is used up")
    wait_until(lambda: not open_connections(product, account_id), "all connections have ended")
    assert quota <= sum(used(product, account_id)) <= quota + MIB, total
    for each in proxies:
        with pytest.raises(AssertionError, match="429"):
            Client(each, origin)  # each knows that there is nothing left


@pytest.mark.parametrize("collector", ["there", "away"])
def test_workers_that_race_for_a_quota_stay_within_a_mebibyte_together_of_it(product: Product, collector: str) -> None:
    quota = 32 * MIB
    account_id = make_account(product, username=f"ada-{collector}", quota={"bytes": quota})
    proxy = product.proxy(auth={"enabled": True}, workers=2)
    all_run(product, proxy, 2)
    metrics = product.actor("metrics")
    with Origin(echoes) as origin, ExitStack() as stack:
        clients = [Client(proxy, origin, f"ada-{collector}") for _ in range(12)]
        for each in clients:
            stack.enter_context(each.sock)
        if collector == "away":
            metrics.suspend()
        try:
            race(clients)
        finally:
            with suppress(psutil.NoSuchProcess):  # the supervisor has killed it for its silence
                metrics.resume()
    wait_until(lambda: sum(used(product, account_id)) >= quota, "the quota is used up")  # of what was never booked
    wait_until(lambda: not open_connections(product, account_id), "all connections have ended")
    assert sum(used(product, account_id)) <= quota + MIB
    product.api("DELETE", f"/proxies/{proxy['id']}")


def test_a_quota_that_is_reached_is_an_event_once_though_the_collector_is_killed(own_product: Product) -> None:
    product = own_product
    with Target() as target, Origin(echoes) as origin:
        body = {"name": "quotas", "url": target.url, "events": ["account.*"]}
        product.data("POST", "/webhooks", body)
        account_id = make_account(product, quota={"bytes": 40_000})
        [proxy] = guarded_proxies(product, 1)
        client = Client(proxy, origin)
        with client.sock:
            client.echo(17_000)
            wait_until(lambda: kinds(target)[1:] == ["account.quota_warning"], "the warning has come")
            product.actor("metrics").kill()
            wait_until(lambda: product.actor("metrics"), "the collector runs again")
            client.echo(4_000)
        wait_until(lambda: kinds(target)[1:] == ["account.quota_warning", "account.quota_reached"], "both have come")
        product.actor("metrics").kill()
        with pytest.raises(AssertionError, match="429"):
            Client(proxy, origin)
        product.data("PATCH", f"/accounts/{account_id}", {"tags": ["end"]})
        wait_until(lambda: "account.updated" in kinds(target), "a later event has come")
        assert sorted(kinds(target)) == [
            "account.created",
            "account.quota_reached",
            "account.quota_warning",
            "account.updated",
        ]
        reached = next(each.content["data"] for each in target.received if "quota_reached" in each.content["type"])
        assert (reached["account_id"], reached["quota"]) == (account_id, 40_000)
        assert 40_000 <= reached["used"] <= sum(used(product, account_id))


def kinds(target: Target) -> list[str]:
    return [each.content["type"] for each in target.received]


def open_connections(product: Product, account_id: str) -> int:
    return int(product.data("GET", f"/accounts/{account_id}")["account"]["active_connections"])
