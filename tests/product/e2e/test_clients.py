"""Programs that people use, through a proxy: curl, pip, git and requests."""

from __future__ import annotations

import hashlib
import os
import shutil
import ssl
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.repositories import make_repository, make_wheel, run

pytestmark = pytest.mark.product


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder and the URL under which it is served."""
    folder = tmp_path / "served"
    folder.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
    with serving(server):
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"


@pytest.fixture(scope="module")
def tls_origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Origin, str]]:
    """An https origin and the certificate to trust."""
    cert, key = make_pair(tmp_path_factory.mktemp("tls"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    server = Origin(context)
    with serving(server):
        yield server, cert


def through(proxy: dict[str, Any]) -> str:
    return f"http://127.0.0.1:{proxy['port']}"


@needs("curl")
def test_curl_fetches_http_and_the_detail_form_shows_it(
    product: Product, proxy: dict[str, Any], origin: Origin
) -> None:
    for _ in range(3):
        assert run("curl", "-sS", "-x", through(proxy), origin.url("/hello")) == "hello"

    def counted() -> dict[str, Any] | None:
        detail: dict[str, Any] = product.data("GET", f"/proxies/{proxy['id']}")["proxy"]
        return detail if detail["stats"]["total_requests"] == 3 else None

    detail = wait_until(counted, "three requests are counted")
    assert detail["stats"]["bytes_out"] > 3 * len("hello")
    assert detail["stats"]["bytes_in"] > 0
    assert detail["stats"]["last_request"]
    assert detail["runtime"]["pid"] == proxy["runtime"]["pid"]
    assert os.path.exists(f"/proc/{detail['runtime']['pid']}")


@needs("curl")
def test_curl_fetches_https_through_connect(proxy: dict[str, Any], tls_origin: tuple[Origin, str]) -> None:
    server, cert = tls_origin
    command = ("curl", "-sS", "--cacert", cert, "-x", through(proxy))
    assert run(*command, server.url("/hello")) == "hello"
    assert len(run(*command, server.url("/megabyte"))) == 2**20


@needs("curl")
def test_curl_uploads_with_expect_and_chunked(proxy: dict[str, Any], origin: Origin, tmp_path: Path) -> None:
    body = tmp_path / "body"
    body.write_bytes(b"0123456789" * 200_000)
    for extra in ("Expect: 100-continue", "Transfer-Encoding: chunked"):
        command = ("curl", "-sS", "-x", through(proxy), "-H", extra, "--data-binary", f"@{body}")
        assert run(*command, origin.url("/echo")) == body.read_text()


@needs("curl")
def test_curl_without_credentials_gets_407_and_with_them_the_page(product: Product, origin: Origin) -> None:
    proxy = product.proxy(auth={"enabled": True, "username": "ada", "password": "p@ss:word"})
    status = ("-o", "/dev/null", "-w", "%{http_code}")
    assert run("curl", "-sS", *status, "-x", through(proxy), origin.url("/hello")) == "407"
    command = ("curl", "-sS", "-x", through(proxy), "--proxy-user", "ada:p@ss:word")
    assert run(*command, origin.url("/hello")) == "hello"
    product.data("DELETE", f"/proxies/{proxy['id']}")


@needs("curl")
def test_curl_of_http_1_0_is_answered(proxy: dict[str, Any], origin: Origin) -> None:
    assert run("curl", "-sS", "--http1.0", "-x", through(proxy), origin.url("/chunked")) == "one,two,three"


@needs("curl")
@needs("git")
@pytest.mark.parametrize("protocol", ["http", "https", "socks4", "socks5", "mixed"])
def test_every_line_to_copy_is_a_way_through_a_proxy_that_asks_for_credentials(
    protocol: str, product: Product, origin: Origin, files: tuple[Path, str], tmp_path: Path
) -> None:
    folder, served = files
    make_repository(tmp_path / "work", folder / "project.git")
    password = "p@ss: \"'$%/word"
    account = product.data("POST", "/accounts", {"username": "al'ice $x", "password": password})["account"]
    credential = product.data("POST", f"/accounts/{account['id']}/credentials", {"ttl": 600})["secret"]
    (tmp_path / "tls").mkdir()
    pair = make_pair(tmp_path / "tls")
    tls = {"tls": {"cert_file": pair[0], "key_file": pair[1]}} if protocol == "https" else {}
    proxy = product.proxy(protocol=protocol, auth={"enabled": True}, **tls)
    query = f"username={quote(account['username'])}"
    lines = product.data("GET", f"/proxies/{proxy['id']}/snippets?{query}")["snippets"]
    shutil.copy(pair[0], tmp_path / "CA.pem")
    home = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}

    def shell(script: str) -> str:
        secret = quote(password, safe="")
        filled = script.replace(":PASSWORD@", f":{secret}@").replace("//CREDENTIAL:", f"//{credential}:")
        filled = filled.replace("https://example.com/", origin.url("/hello"))
        done = subprocess.run(
            ["bash", "-ec", filled], capture_output=True, text=True, timeout=180, cwd=tmp_path, env=home
        )
        assert done.returncode == 0, f"{filled}\n{done.stderr}"
        return done.stdout

    try:
        for name in ("curl", "socks") if protocol == "mixed" else ("curl",):
            assert shell(lines[name]) == "hello"
        trust = "--proxy-cacert CA.pem" if protocol == "https" else ""
        env = lines["environment"].replace(
            "export no_proxy=localhost,127.0.0.1,::1 NO_PROXY=localhost,127.0.0.1,::1", ""
        )
        assert shell(f"{env}\ncurl -sS {trust} {origin.url('/hello')}") == "hello"
        assert shell(f"{lines['git']}\ngit ls-remote {served}/project.git").count("refs/heads/main") == 1
        if protocol not in ("https", "socks4"):  # requests verifies a private authority only for targets by TLS
            assert shell(f"python3 - <<'END'\n{lines['python']}\nEND") == "200\n"
    finally:
        product.data("DELETE", f"/proxies/{proxy['id']}")
        product.data("DELETE", f"/accounts/{account['id']}")


def test_requests_fetches_http_and_https(proxy: dict[str, Any], origin: Origin, tls_origin: tuple[Origin, str]) -> None:
    secure, cert = tls_origin
    with requests.Session() as session:
        session.trust_env = False
        session.proxies = {"http": through(proxy), "https": through(proxy)}
        for _ in range(3):
            assert session.get(origin.url("/hello"), timeout=15).text == "hello"
            assert session.get(secure.url("/hello"), timeout=15, verify=cert).text == "hello"
        assert session.post(origin.url("/echo"), data=iter([b"a", b"b"]), timeout=15).content == b"ab"


def test_pip_downloads_a_package_through_the_proxy(
    proxy: dict[str, Any], files: tuple[Path, str], tmp_path: Path
) -> None:
    folder, url = files
    wheel = make_wheel(folder / "packages")
    index = folder / "simple" / "tiny-thing"
    index.mkdir(parents=True)
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    index.joinpath("index.html").write_text(
        f'<!DOCTYPE html><html><body><a href="/packages/{wheel.name}#sha256={digest}">{wheel.name}</a></body></html>'
    )
    pip = (sys.executable, "-m", "pip", "--isolated", "--disable-pip-version-check", "--no-cache-dir")
    where = ("--index-url", f"{url}/simple", "--trusted-host", "127.0.0.1", "--proxy", through(proxy))
    run(*pip, "download", "--no-deps", *where, "tiny-thing", "-d", str(tmp_path / "got"))
    assert (tmp_path / "got" / wheel.name).read_bytes() == wheel.read_bytes()


@needs("git")
def test_git_clones_over_http_through_the_proxy(proxy: dict[str, Any], files: tuple[Path, str], tmp_path: Path) -> None:
    folder, url = files
    commit = make_repository(tmp_path / "work", folder / "project.git")
    run("git", "-c", f"http.proxy={through(proxy)}", "clone", "-q", f"{url}/project.git", str(tmp_path / "clone"))
    assert run("git", "rev-parse", "HEAD", cwd=tmp_path / "clone").strip() == commit
    assert len(list((tmp_path / "clone").glob("file-*"))) == 20
