"""Large bodies over real connections: the head is judged first, and what is taken in is bounded."""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.api_settings import ApiSettings
from api.app import create_app
from api.http import body
from api.http.body import IMPORT_PATH, MAX_BODY, MAX_IMPORT
from api.process import keep_temporary_files_in
from api.server import parser
from api.server.http_server import ApiServer
from api.server.tasks import RejectedRequestLog
from config.files.paths import PathError
from config.settings.settings import Security
from tests.kit.api_stage import PROXY, Api
from tests.kit.wait import wait_until

LONG = 120.0
KIB = 1024
MIB = 1024 * KIB
PROXIES = "/api/v1/proxies"
LOGIN = "/api/v1/auth/login"
UNKNOWN = "/api/v1/nowhere"


class Site:
    """The application behind a server at a free port."""

    def __init__(self, settings: ApiSettings | None = None) -> None:
        self.api = Api(settings)
        self.api.start()
        listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        listener.setblocking(False)
        self.port = int(listener.getsockname()[1])
        self.server = ApiServer(
            create_app(self.api.services), listener, 1000, on_rejected=RejectedRequestLog(self.api.services)
        )
        self.server.start()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), LONG)

    def close(self) -> None:
        self.server.close()
        self.api.close()


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


def head(path: str, credentials: dict[str, str], **fields: Any) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: a", "Content-Type: application/json"]
    lines += [f"{name}: {value}" for name, value in credentials.items()]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode()


def chunked(content: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(content), content)


def response(client: socket.socket) -> tuple[int, Any]:
    reply = http.client.HTTPResponse(client)
    reply.begin()
    content = reply.read()
    return reply.status, json.loads(content) if content else None


def status_of(site: Site, sent: bytes) -> int:
    with site.connect() as client:
        client.sendall(sent)
        return response(client)[0]


def test_a_hundred_half_sent_bodies_without_credentials_are_refused_unread(site: Site) -> None:
    begun = head(IMPORT_PATH, {}, Content_Length=16 * MIB) + bytes(32 * KIB)
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(site.connect()) for _ in range(100)]
        for client in clients:
            client.sendall(begun)
        assert {response(client)[0] for client in clients} == {401}


def test_a_chunked_body_without_credentials_is_refused_after_64_kib(site: Site) -> None:
    with site.connect() as client:
        client.sendall(head(IMPORT_PATH, {}, Transfer_Encoding="chunked"))
        client.sendall(chunked(bytes(body.SMALL)))
        assert response(client)[0] == 401


@pytest.mark.parametrize(
    ("path", "who", "size", "status"),
    [
        (PROXIES, None, 99 * MIB, 401),
        (PROXIES, "auditor", 99 * MIB, 403),
        (PROXIES, "administrator", MAX_BODY + 1, 413),
        (IMPORT_PATH, "auditor", MAX_IMPORT, 403),
        (IMPORT_PATH, "administrator", MAX_IMPORT + 1, 413),
        (LOGIN, None, body.SMALL + 1, 413),
        (UNKNOWN, None, 99 * MIB, 404),
    ],
)
def test_a_large_body_is_judged_by_its_head_and_in_the_order_of_all_requests(
    site: Site, path: str, who: str | None, size: int, status: int
) -> None:
    if who is not None:
        site.api.add_user("eva", role=who)
    credentials = {} if who is None else site.api.token("eva")
    assert status_of(site, head(path, credentials, Content_Length=size)) == status


def test_a_large_import_is_taken_in_whole_as_it_is_and_in_chunks(site: Site) -> None:
    token = site.api.token()
    document = site.api.get("/config/export", token).json["data"]
    large = json.dumps(document).encode() + b" " * (3 * MIB)
    path = f"{IMPORT_PATH}?dry_run=true"
    assert status_of(site, head(path, token, Content_Length=len(large)) + large) == 200
    pieces = b"".join(chunked(large[at : at + 50 * KIB]) for at in range(0, len(large), 50 * KIB)) + chunked(b"")
    assert status_of(site, head(path, token, Transfer_Encoding="chunked") + pieces) == 200


def test_a_client_that_waits_for_100_continue_gets_the_rejection_in_its_place(site: Site) -> None:
    body = json.dumps(PROXY).encode() + b" " * (100 * KIB)
    fields = {"Content_Length": len(body), "Expect": "100-continue"}
    assert status_of(site, head(PROXIES, {}, **fields)) == 401
    with site.connect() as client:
        client.sendall(head(PROXIES, site.api.token(), **fields))
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        assert response(client)[0] == 201


def test_requests_before_and_after_a_large_one_are_served_in_order(site: Site) -> None:
    token = site.api.token()
    body = json.dumps(PROXY).encode() + b" " * (100 * KIB)
    small = head("/api/v1/auth/validate", token, Content_Length=0)
    with site.connect() as client:
        client.sendall(small + head(PROXIES, token, Content_Length=len(body)) + body + small)
        reader = client.makefile("rb")
        statuses = []
        for _ in range(3):
            statuses.append(reader.readline().split()[1])
            fields = dict(line.split(b": ", 1) for line in iter(lambda: reader.readline().strip(), b""))
            reader.read(int(fields[b"Content-Length"]))
    assert statuses == [b"200", b"201", b"200"]


def test_a_large_request_is_counted_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    site = Site(ApiSettings(security=Security()))
    try:
        token = site.api.token()
        body = json.dumps(PROXY).encode() + b" " * (100 * KIB)
        with caplog.at_level(logging.INFO, "api.requests"), site.connect() as client:
            client.sendall(head(PROXIES, token, Content_Length=len(body)) + body)
            reply = http.client.HTTPResponse(client)
            reply.begin()
            assert (reply.status, reply.headers["X-RateLimit-Remaining"]) == (201, "99")
            reply.read()
        assert [record.message.split()[:3] for record in caplog.records] == [["POST", PROXIES, "201"]]
    finally:
        site.close()


def test_one_user_has_a_share_of_the_room_for_large_bodies(site: Site) -> None:
    begun = head(IMPORT_PATH, site.api.token(), Content_Length=MAX_IMPORT)
    large = site.server.bodies.large
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(site.connect()) for _ in range(body.LARGE_EACH // MAX_IMPORT)]
        for client in clients:
            client.sendall(begun)
        wait_until(lambda: large.reserved == body.LARGE_EACH, "all of them are let in", LONG)
        assert status_of(site, begun) == 429
        site.api.add_user("eva", role="administrator")
        other = stack.enter_context(site.connect())
        other.sendall(head(IMPORT_PATH, site.api.token("eva"), Content_Length=MAX_IMPORT))
        wait_until(lambda: large.reserved == body.LARGE_EACH + MAX_IMPORT, "another user is let in", LONG)
    wait_until(lambda: large.reserved == 0, "those who have gone hold nothing", LONG)


def test_without_room_for_small_bodies_a_request_is_503_and_the_next_one_is_served(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = site.server.bodies.small
    monkeypatch.setattr(small, "_total", 1000)
    with site.connect() as client:
        client.sendall(head(LOGIN, {}, Content_Length=900) + b"{")
        wait_until(lambda: small.reserved == 900, "the room is taken", LONG)
        with site.connect() as second:
            second.sendall(head(LOGIN, {}, Content_Length=200))
            status, envelope = response(second)
        assert (status, envelope["error"]["code"]) == (503, "UNAVAILABLE")
    wait_until(lambda: small.reserved == 0, "it is free again", LONG)
    assert status_of(site, head(LOGIN, {}, Content_Length=2) + b"{}") == 400


def test_a_length_of_thousands_of_digits_is_400(site: Site) -> None:
    assert status_of(site, head(LOGIN, {}, Content_Length="9" * 5000)) == 400
    assert len("9" * parser.LENGTH_DIGITS_MAX) < len(str(2**64))


def test_temporary_files_lie_private_in_the_data_directory_and_old_ones_are_gone(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    folder = site.api.data.temporary
    folder.mkdir()
    (folder / "left").write_text("by a process that was killed")
    keep_temporary_files_in(site.api.data)
    assert (folder.stat().st_mode & 0o777, list(folder.iterdir())) == (0o700, [])
    with tempfile.NamedTemporaryFile() as made:
        file = Path(made.name)
        assert (file.parent, file.stat().st_mode & 0o777) == (folder, 0o600)
    folder.rmdir()
    folder.write_text("no folder")
    with pytest.raises(PathError, match="cannot be emptied"):
        keep_temporary_files_in(site.api.data)
