"""Programs that people use, through a proxy: curl, pip, git and requests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.product.e2e.repositories import make_repository

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


def through(proxy: dict[str, Any]) -> str:
    return f"http://127.0.0.1:{proxy['port']}"


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
