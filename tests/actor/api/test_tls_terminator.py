"""The TLS terminator by itself, between real clients and an API that is played here."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from actors.net.accepting import ACCEPT_PAUSE
from actors.process import Boot
from api.server.tls_terminator import Half, TlsTerminator
from config.files.paths import open_data_dir, open_run_dir
from tests.kit.certificates import make_pair
from tests.kit.descriptor_limit import Poor
from tests.kit.folders import FOLDERS

LONG = 120.0
REQUEST = b"GET / HTTP/1.1\r\n\r\n"
PROXY_HEADER = b"\r\n\r\n\x00\r\nQUIT\n"


class Front:
    """A front whose loop is turned while a test waits for something. `api` is where it passes connections to."""

    def __init__(self, folder: Path, pair: tuple[str, str]) -> None:
        run = open_run_dir(folder / "r")
        self.listener = Poor(fileno=socket.create_server(("127.0.0.1", 0)).detach())
        self.port: int = self.listener.getsockname()[1]
        server = {"tls": {"cert_file": pair[0], "key_file": pair[1]}, "max_connections": 100}
        boot = Boot("tls", 1, str(run.path), str(open_data_dir(folder / "d").path), {"server": server})
        self.front = TlsTerminator(boot, [self.listener])
        self.api = socket.socket(socket.AF_UNIX)
        self.api.bind(str(run.api_inner))
        self.api.listen()
        self._threads = ThreadPoolExecutor(4)

    def meanwhile(self, work: Callable[[], Any]) -> Future[Any]:
        """Have it done by another thread; it goes on while `wait` is called."""
        return self._threads.submit(work)

    def wait(self, done: Callable[[], Any]) -> None:
        """Turn until it is true."""
        deadline = time.monotonic() + LONG
        while not done():
            assert time.monotonic() < deadline, "in vain"
            self.front.loop.turn(0.02)

    def result(self, future: Future[Any]) -> Any:
        self.wait(future.done)
        return future.result()

    def connect(self) -> socket.socket:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(LONG)
        sock.connect(("127.0.0.1", self.port))
        return sock

    def secure(self) -> ssl.SSLSocket:
        return context().wrap_socket(self.connect())

    def accepted(self) -> socket.socket:
        """The next connection at the API, its PROXY header taken."""
        connection, _ = self.api.accept()
        connection.settimeout(LONG)
        assert connection.recv(28).startswith(PROXY_HEADER)
        return connection

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        self.front.close()
        self.api.close()


def context() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    return made


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate of some 60 kB: more than the buffers of a socket take in one go."""
    folder = tmp_path_factory.mktemp("large")
    return make_pair(folder, "large", hosts=(f"{number:020d}.example" for number in range(2000)))


@pytest.fixture
def front(pair: tuple[str, str]) -> Iterator[Front]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as folder:
        made = Front(Path(folder), pair)
        yield made
        made.close()


def test_a_handshake_that_the_socket_does_not_take_in_one_go_goes_on_though_the_client_says_nothing(
    front: Front,
) -> None:
    front.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)

    def listens() -> bool:
        arriving, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = context().wrap_bio(arriving, leaving)
        with front.connect() as sock:
            with pytest.raises(ssl.SSLWantReadError):
                client.do_handshake()
            sock.sendall(leaving.read())
            while not leaving.pending:  # it has something to say when all of the server's flight is there
                arriving.write(sock.recv(1024))
                try:
                    client.do_handshake()
                except ssl.SSLWantReadError:
                    continue
            return True

    assert front.result(front.meanwhile(listens))


def test_a_client_that_ends_its_side_early_gets_all_of_the_response(front: Front) -> None:
    front.listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    response = b"x" * 200_000  # more than the sockets take, less than makes the API wait
    said, written = threading.Event(), threading.Event()

    def asks() -> int:
        client = front.secure()
        client.sendall(REQUEST)
        say_goodbye(client)  # before anything comes: OpenSSL takes what comes during it for an error
        said.set()
        written.wait(LONG)
        return received(client)

    def responds() -> None:
        with front.accepted() as connection:
            assert connection.recv(1000) == REQUEST
            assert said.wait(LONG)
            connection.sendall(response)

    responding, asking = front.meanwhile(responds), front.meanwhile(asks)
    front.result(responding)
    front.wait(lambda: all(each._response.half is Half.ENDED for each in front.front._connections))
    written.set()
    assert front.result(asking) == len(response)


def say_goodbye(client: ssl.SSLSocket) -> None:
    """Send a close_notify: nothing more comes from here. `unwrap` would wait for the other side."""
    client.setblocking(False)
    with contextlib.suppress(ssl.SSLWantReadError):
        while True:
            try:
                client._sslobj.shutdown()  # type: ignore[attr-defined]
            except ssl.SSLWantWriteError:
                select.select((), (client,), (), LONG)
    client.settimeout(LONG)


def received(client: ssl.SSLSocket) -> int:
    """Bytes up to the close_notify of the other side."""
    count = 0
    with contextlib.suppress(ssl.SSLZeroReturnError):  # raised to a client that has sent its own
        while data := client.recv(65536):
            count += len(data)
    return count


def test_the_end_of_a_request_is_passed_on_when_the_api_has_taken_all_that_came_before(front: Front) -> None:
    sent = 1024 * 1024

    def uploads() -> ssl.SSLSocket:
        client = front.secure()
        client.sendall(b"x" * sent)
        say_goodbye(client)
        return client

    uploading = front.meanwhile(uploads)
    front.wait(lambda: front.front._connections)

    def takes() -> int:
        with front.accepted() as connection:
            count = 0
            while data := connection.recv(65536):
                count += len(data)
            return count

    taking = front.meanwhile(takes)
    assert front.result(taking) == sent
    front.result(uploading).close()


def test_without_descriptors_it_pauses_says_so_once_and_takes_who_has_waited(
    front: Front, caplog: pytest.LogCaptureFixture
) -> None:
    front.listener.poor = True
    waiting = front.meanwhile(front.secure)
    until = time.monotonic() + 5 * ACCEPT_PAUSE
    front.wait(lambda: time.monotonic() > until)
    assert 1 <= front.listener.asked <= 10
    assert [record.getMessage() for record in caplog.records if "accepted" in record.getMessage()] == [
        "connections can't be accepted: [Errno 24] Too many open files"
    ]
    front.listener.poor = False
    front.result(waiting).close()
