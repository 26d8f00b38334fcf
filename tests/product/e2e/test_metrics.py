"""A known number of requests and bytes over all four protocols, and every surface that reports them."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import psutil
import pytest
import requests
import zmq
from prometheus_client.parser import text_string_to_metric_families

from actors.metrics.series_writer import RATE_TICKS
from config.text.formatting import parse_moment, size_text
from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin
from tests.kit.live_metrics import live_figures
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.fetching import fetched
from tests.product.e2e.watcher import watch

pytestmark = pytest.mark.product

TOKEN = "a token that only the scraper has"
PROTOCOLS = ("http", "https", "socks4", "socks5")
ANSWERED, REFUSED = 4, 2
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 3000\r\n\r\n" + b"x" * 3000


class Sent:
    """What clients have sent and received, counted by themselves."""

    def __init__(self) -> None:
        self.requests = self.errors = self.bytes_in = self.bytes_out = 0


class Counting:
    """A connection to a proxy that counts what goes over it."""

    def __init__(self, proxy: dict[str, Any], sent: Sent) -> None:
        raw = socket.create_connection(("127.0.0.1", proxy["port"]), timeout=20)
        self._sent = sent
        self._socket = raw if proxy["protocol"] != "https" else _trusting().wrap_socket(raw)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)
        self._sent.bytes_in += len(data)

    def receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = self._socket.recv(count - len(data))
            assert more, f"the connection ended after {data!r}"
            data += more
        self._sent.bytes_out += len(data)
        return data

    def receive_all(self) -> bytes:
        data = b""
        while more := self._socket.recv(65536):
            data += more
        self._sent.bytes_out += len(data)
        return data

    def close(self) -> None:
        self._socket.close()


def _trusting() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@pytest.fixture(scope="module")
def target() -> Iterator[int]:
    """An origin that sends the same octets for every head."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                client, _address = server.accept()
            except OSError:
                return
            with client:
                while b"\r\n\r\n" in client.recv(65536):
                    client.sendall(ANSWER)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield int(server.getsockname()[1])
    server.shutdown(socket.SHUT_RDWR)
    server.close()
    thread.join(120)


@pytest.fixture(scope="module")
def product() -> Iterator[Product]:
    with Product(env={"PROXYFLEET_METRICS__PROMETHEUS_TOKEN": TOKEN}) as running:
        yield running


class Listener:
    """A subscriber that receives every second from before the traffic on.

    In the collector's first seconds a rate is the mean of fewer of them, so what passes then stays in more rates than
    it counts for.
    """

    def __init__(self, address: str) -> None:
        self.received: list[dict[str, Any]] = []
        self._context: zmq.Context[Any] = zmq.Context()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._listen, args=(address,), daemon=True)
        self._thread.start()
        wait_until(lambda: len(self.received) > RATE_TICKS, "rates are means of as many seconds as later")

    def _listen(self, address: str) -> None:
        with self._context.socket(zmq.SUB) as subscriber:
            subscriber.linger = 0
            subscriber.subscribe("metrics.system")
            subscriber.connect(address)
            while not self._stop.is_set():
                if subscriber.poll(100):
                    self.received.append(msgpack.unpackb(subscriber.recv_multipart()[1]))

    def sum_of(self, name: str) -> float:
        """What a rate adds up to: each is the mean of the last `RATE_TICKS` seconds, however long these were."""
        pairs = zip(self.received[::RATE_TICKS], self.received[RATE_TICKS::RATE_TICKS], strict=False)
        return float(sum(after[name] * (after["timestamp"] - before["timestamp"]) for before, after in pairs))

    def close(self) -> None:
        self._stop.set()
        self._thread.join(120)
        self._context.term()


@pytest.fixture(scope="module")
def listener(product: Product) -> Iterator[Listener]:
    made = Listener(product.publish)
    yield made
    made.close()


@pytest.fixture(scope="module")
def traffic(
    product: Product, listener: Listener, target: int, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[dict[str, Any], Sent]]:
    """The proxies by protocol, with what was sent through each; nothing is under way any more."""
    files: Path = tmp_path_factory.mktemp("tls")
    cert_file, key_file = make_pair(files)
    unused = product.free_port()
    done = {}
    for protocol in PROTOCOLS:
        tls = {"tls": {"cert_file": cert_file, "key_file": key_file}} if protocol == "https" else {}
        proxy, sent = product.proxy(protocol=protocol, **tls), Sent()
        exchange = {"http": by_http, "https": by_http, "socks4": by_socks4, "socks5": by_socks5}[protocol]
        for port in [target] * ANSWERED + [unused] * REFUSED:
            exchange(proxy, sent, port, port == target)
            sent.requests += 1
            sent.errors += port != target
        done[protocol] = (proxy, sent)
    for proxy, sent in done.values():
        wait_until(lambda p=proxy, s=sent: settled(product, p, s), f"the figures of {proxy['protocol']} are published")
    return done


def settled(product: Product, proxy: dict[str, Any], sent: Sent) -> bool:
    stats = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]
    return bool(stats["total_requests"] == sent.requests and stats["active_connections"] == 0)


def by_http(proxy: dict[str, Any], sent: Sent, port: int, answered: bool) -> None:
    connection = Counting(proxy, sent)
    host = f"127.0.0.1:{port}"
    connection.send(f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    head, _, body = connection.receive_all().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 " if answered else b"HTTP/1.1 502 "), head
    assert not answered or body == b"x" * 3000
    connection.close()


def by_socks4(proxy: dict[str, Any], sent: Sent, port: int, answered: bool) -> None:
    connection = Counting(proxy, sent)
    connection.send(b"\x04\x01" + port.to_bytes(2) + socket.inet_aton("127.0.0.1") + b"\0")
    assert connection.receive(8)[1] == (90 if answered else 91)
    through_tunnel(connection, answered)


def by_socks5(proxy: dict[str, Any], sent: Sent, port: int, answered: bool) -> None:
    connection = Counting(proxy, sent)
    connection.send(b"\x05\x01\x00")
    assert connection.receive(2) == b"\x05\x00"
    connection.send(b"\x05\x01\x00\x01" + socket.inet_aton("127.0.0.1") + port.to_bytes(2))
    assert connection.receive(10)[1] == (0 if answered else 5)
    through_tunnel(connection, answered)


def through_tunnel(connection: Counting, answered: bool) -> None:
    if answered:
        connection.send(b"GET / HTTP/1.1\r\n\r\n")
        assert connection.receive(len(ANSWER)) == ANSWER
    connection.close()


def total(traffic: dict[str, tuple[dict[str, Any], Sent]], name: str) -> int:
    return sum(getattr(sent, name) for _proxy, sent in traffic.values())


Traffic = dict[str, tuple[dict[str, Any], Sent]]


def test_the_stats_of_each_proxy_are_what_its_clients_counted(product: Product, traffic: Traffic) -> None:
    for proxy, sent in traffic.values():
        stats = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["stats"]
        assert (stats["total_requests"], stats["errors"]) == (sent.requests, sent.errors)
        assert (stats["bytes_in"], stats["bytes_out"]) == (sent.bytes_in, sent.bytes_out), proxy["protocol"]
        assert stats["bytes_transferred"] == size_text(sent.bytes_in + sent.bytes_out)


def test_every_form_of_a_proxy_has_the_same_stats(product: Product, traffic: Traffic) -> None:
    listed = {each["id"]: each["stats"] for each in product.data("GET", "/proxies")["proxies"]}
    for proxy, sent in traffic.values():
        path = f"/proxies/{proxy['id']}"
        forms = [
            listed[proxy["id"]],
            product.data("PATCH", path, {"tags": ["counted"]})["proxy"]["stats"],
            product.data("POST", f"{path}/start")["proxy"]["stats"],
        ]
        for stats in forms:
            assert (stats["total_requests"], stats["errors"]) == (sent.requests, sent.errors)
            assert (stats["bytes_in"], stats["bytes_out"]) == (sent.bytes_in, sent.bytes_out)


def test_the_status_is_the_sum(product: Product, traffic: Traffic) -> None:
    status = product.data("GET", "/status")
    assert status["proxy"]["total_requests"] == total(traffic, "requests")
    assert status["proxy"]["total_errors"] == total(traffic, "errors")
    assert status["proxy"]["records_dropped"] == 0
    assert status["network"]["bytes_in"] == total(traffic, "bytes_in")
    assert status["network"]["bytes_out"] == total(traffic, "bytes_out")
    assert status["proxy"]["error_rate"] == f"{100 * REFUSED / (ANSWERED + REFUSED):.2f}%"
    assert status["network"]["total_bytes_in"] == size_text(total(traffic, "bytes_in"))
    assert status["network"]["total_bytes_out"] == size_text(total(traffic, "bytes_out"))


@pytest.mark.parametrize("interval", ["1m", "5m", "1h", "1d"])
def test_the_series_add_up_to_it_by_proxy_and_in_total(product: Product, traffic: Traffic, interval: str) -> None:
    def sums(query: str) -> tuple[float, float]:
        data = product.data("GET", f"/metrics?interval={interval}&metrics=requests_total,errors_total{query}")
        series = data["metrics"]
        return tuple(sum(point["value"] for point in series[name]) for name in ("requests_total", "errors_total"))  # type: ignore[return-value]

    assert sums("") == (total(traffic, "requests"), total(traffic, "errors"))
    for proxy, sent in traffic.values():
        assert sums(f"&proxy_id={proxy['id']}") == (sent.requests, sent.errors)


def test_bandwidth_over_time_adds_up_to_the_bytes(product: Product, traffic: Traffic) -> None:
    def bytes_of(name: str) -> float:
        """The bucket of now is per second of the part that has passed, which is not known exactly."""
        data = product.data("GET", f"/metrics?interval=1m&metrics={name}")
        now = time.time()
        points = ((parse_moment(point["timestamp"]), point["value"]) for point in data["metrics"][name])
        return sum(value * min(60.0, max(1.0, now - began)) for began, value in points)

    def adds_up(name: str) -> bool:
        return bool(bytes_of(name.replace("bytes", "bandwidth")) == pytest.approx(total(traffic, name), rel=0.2))

    for name in ("bytes_in", "bytes_out"):
        wait_until(lambda name=name: adds_up(name), f"bandwidth adds up to {name}")


def test_live_rates_add_up_to_the_requests_and_bytes(listener: Listener, traffic: Traffic) -> None:
    def over() -> bool:
        last = listener.received[-1]
        return bool(last["requests_total"] == total(traffic, "requests") and last["requests_per_second"] == 0)

    wait_until(over, "all is counted, and the last five seconds were quiet")
    assert listener.sum_of("requests_per_second") == pytest.approx(total(traffic, "requests"), rel=0.2)
    assert listener.sum_of("bandwidth_in") == pytest.approx(total(traffic, "bytes_in"), rel=0.2)
    assert listener.sum_of("bandwidth_out") == pytest.approx(total(traffic, "bytes_out"), rel=0.2)


def test_processors_and_memory_of_a_proxy_are_those_of_its_process(product: Product, traffic: Traffic) -> None:
    for proxy, _sent in traffic.values():
        metrics = product.data("GET", f"/metrics/realtime?proxy_id={proxy['id']}")["metrics"]
        resident = psutil.Process(proxy["runtime"]["pid"]).memory_info().rss
        expected = 100 * resident / psutil.virtual_memory().total
        assert metrics["memory_usage"] == pytest.approx(expected, rel=0.5, abs=0.002)
        assert 0 <= metrics["cpu_usage"] <= 100


def test_the_snapshot_is_of_the_last_minute_of_the_same_traffic(product: Product, traffic: Traffic) -> None:
    metrics = product.data("GET", "/metrics/realtime")["metrics"]
    assert metrics["active_connections"] == 0
    assert 0 <= metrics["error_rate"] <= 100
    assert 0 <= metrics["response_time_p50"] <= metrics["response_time_p99"]


def test_there_is_a_record_of_every_request_with_its_bytes(product: Product, traffic: Traffic) -> None:
    for proxy, sent in traffic.values():
        found = wait_until(
            lambda p=proxy, s=sent: len(records(product, p)) == s.requests and records(product, p), "the records"
        )
        assert sorted(record["status_code"] for record in found) == [200] * ANSWERED + [502] * REFUSED
        if proxy["protocol"] == "http":
            assert sum(record["bytes_out"] for record in found) == sent.bytes_out


def records(product: Product, proxy: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]
    return found


def scrape(product: Product, **headers: str) -> requests.Response:
    return product.session.get(f"{product.base_url}/metrics", headers=headers, timeout=60)


def test_the_exposition_has_the_same_totals(product: Product, traffic: Traffic) -> None:
    response = scrape(product, Authorization=f"Bearer {TOKEN}", Accept="application/openmetrics-text,*/*;q=0.1")
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    samples = {
        (sample.name, *sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(response.text)
        for sample in family.samples
    }
    for protocol, (proxy, sent) in traffic.items():
        own = ("name", proxy["name"]), ("protocol", protocol), ("proxy", proxy["id"])
        assert samples["proxyfleet_requests_total", ("code", "200"), *own] == ANSWERED
        assert samples["proxyfleet_requests_total", ("code", "502"), *own] == REFUSED
        assert samples["proxyfleet_errors_total", *own] == sent.errors
        assert samples["proxyfleet_received_bytes_total", *own] == sent.bytes_in
        assert samples["proxyfleet_sent_bytes_total", *own] == sent.bytes_out
        assert samples["proxyfleet_proxy_up", *own] == 1
        assert samples["proxyfleet_response_time_seconds_bucket", ("le", "+Inf"), *own] >= ANSWERED
    assert "127.0.0.1" not in response.text, "no address of a client or target"


def test_the_exposition_is_for_those_who_may(product: Product, traffic: Traffic) -> None:
    assert scrape(product).status_code == 401
    assert scrape(product, Authorization="Bearer another token entirely").status_code == 401
    assert scrape(product, Authorization=f"Bearer {product.token}").status_code == 200
    elsewhere = product.session.get(
        f"{product.base_url}/api/v1/metrics", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60
    )
    assert elsewhere.status_code == 401, "the token opens nothing else"


def test_a_subscriber_receives_the_same_totals_within_seconds(product: Product, traffic: Traffic) -> None:
    proxy, sent = traffic["socks5"]
    context: zmq.Context[Any] = zmq.Context()
    with context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.rcvtimeo = 60_000
        subscriber.subscribe(f"metrics.proxy.{proxy['id']}")
        subscriber.subscribe("metrics.system")
        subscriber.connect(product.publish)
        received = {}
        while len(received) < 2:
            topic, payload = subscriber.recv_multipart()
            received[topic.decode()] = msgpack.unpackb(payload)
    own, whole = received[f"metrics.proxy.{proxy['id']}"], received["metrics.system"]
    assert (own["v"], own["proxy_id"], own["requests_total"]) == (1, proxy["id"], sent.requests)
    assert (own["bytes_in"], own["bytes_out"]) == (sent.bytes_in, sent.bytes_out)
    assert (whole["requests_total"], whole["errors_total"]) == (total(traffic, "requests"), total(traffic, "errors"))


def test_live_figures_have_the_name_and_port_that_a_proxy_has_now_also_of_a_new_collector(
    own_product: Product, origin: Origin
) -> None:
    product = own_product
    proxy = product.proxy(name="first name")
    assert fetched(proxy, origin)
    figures = live_figures(product, proxy, lambda each: "name" in each)
    assert (figures["name"], figures["port"]) == ("first name", proxy["port"])
    product.data("PATCH", f"/proxies/{proxy['id']}", {"name": "second name"})
    live_figures(product, proxy, lambda each: each["name"] == "second name")
    label = f"second name ({proxy['port']})"
    wait_until(lambda: label in watched(product), "the example program shows what people call it")
    old = product.actor("metrics")
    old.kill()
    wait_until(lambda: product.actor("metrics").pid != old.pid, "there is another collector")
    live_figures(product, proxy, lambda each: each.get("name") == "second name")


def watched(product: Product) -> str:
    """What the example program prints."""
    done = watch(product.publish, "--once")
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_program_shows_a_table(product: Product, traffic: Traffic) -> None:
    shown = watched(product)
    assert "requests/s" in shown
    assert "(all)" in shown or any(proxy["name"] in shown for proxy, _sent in traffic.values())


def test_the_example_program_says_what_is_wrong_without_a_traceback(tmp_path: Path) -> None:
    there = tmp_path / "watcher.key"
    there.write_text("no key\n")
    for given, word in (
        (("nowhere", "--once"), "tcp://"),
        (("--new-key", str(there)), "File exists"),
        (("--server-key", "short", "--key-file", str(there)), "Z85"),
        (("--server-key", "short", "--key-file", str(tmp_path / "absent")), "No such file"),
    ):
        done = watch(*given)
        assert done.returncode != 0
        assert word in done.stderr
        assert "Traceback" not in done.stderr
    assert there.read_text() == "no key\n"


def test_a_killed_collector_makes_no_step(product: Product, traffic: Traffic) -> None:
    before = product.actor("metrics")
    before.kill()
    wait_until(lambda: product.actor("metrics").pid != before.pid, "the collector runs again")
    wait_until(lambda: product.api("GET", "/metrics").status_code == 200, "it answers")
    for proxy, sent in traffic.values():
        wait_until(lambda p=proxy, s=sent: settled(product, p, s), "the totals are what they were")

    def counted() -> float:
        found = product.data("GET", "/metrics?interval=1m&metrics=requests_total")["metrics"]["requests_total"]
        return sum(float(point["value"]) for point in found)

    wait_until(lambda: counted() == total(traffic, "requests"), "idle processes have reported again")


def test_a_restarted_and_a_killed_proxy_make_no_step(product: Product, traffic: Traffic) -> None:
    for number, (proxy, _sent) in enumerate(traffic.values()):
        path, before = f"/proxies/{proxy['id']}", product.data("GET", f"/proxies/{proxy['id']}")["proxy"]["runtime"]
        if number % 2:
            product.data("POST", f"{path}/restart")
        else:
            psutil.Process(before["pid"]).kill()

        def replaced(path: str = path, before: dict[str, Any] = before) -> bool:
            now = product.data("GET", path)["proxy"]["runtime"]
            return bool(now["state"] == "running" and now["pid"] != before["pid"] and now["since"] > before["since"])

        wait_until(replaced, "a new process runs")
    for proxy, sent in traffic.values():
        wait_until(lambda p=proxy, s=sent: settled(product, p, s), "the totals are what they were")

    def status() -> tuple[int, int]:
        found = product.data("GET", "/status")
        return found["proxy"]["total_requests"], found["network"]["bytes_out"]

    wait_until(
        lambda: status() == (total(traffic, "requests"), total(traffic, "bytes_out")), "nothing is counted twice"
    )
