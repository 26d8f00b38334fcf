"""The socks4 and socks5 protocols of the whole product, with curl, hand-made peers and a small DNS server."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.origins import Origin
from tests.product import Product
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")

STATUS = ("-o", "/dev/null", "-w", "%{http_code}")


@contextmanager
def a_proxy(product: Product, protocol: str, **more: Any) -> Iterator[dict[str, Any]]:
    made = product.proxy(protocol=protocol, **more)
    try:
        yield made
    finally:
        product.api("DELETE", f"/proxies/{made['id']}")


def curl(option: str, proxy: dict[str, Any], *more: str) -> subprocess.CompletedProcess[bytes]:
    command = ("curl", "-sS", "--noproxy", "", option, f"127.0.0.1:{proxy['port']}", *more)
    return subprocess.run(command, capture_output=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


@pytest.mark.parametrize(
    ("protocol", "option"),
    [
        ("socks5", "--socks5"),
        ("socks5", "--socks5-hostname"),
        ("socks4", "--socks4"),
        ("socks4", "--socks4a"),
    ],
)
def test_curl_fetches_through_every_way_of_socks_and_the_record_names_the_target(
    product: Product, origin: Origin, protocol: str, option: str
) -> None:
    with a_proxy(product, protocol) as proxy:
        done = curl(option, proxy, origin.url("/hello").replace("127.0.0.1", "localhost"))
        assert (done.returncode, done.stdout) == (0, b"hello"), done.stderr

        def records() -> Any:
            return product.data("GET", f"/logs?proxy_id={proxy['id']}")["logs"]

        record = wait_until(records, "the record")[0]
        assert record["status_code"] == 200
        assert record["target_url"].endswith(f":{origin.url('').rpartition(':')[2].strip('/')}")


@pytest.mark.parametrize("protocol", ["socks4", "socks5"])
@pytest.mark.parametrize("auth", [False, True])
def test_the_api_tests_a_socks_proxy_as_an_authorised_client(
    product: Product, origin: Origin, protocol: str, auth: bool
) -> None:
    password = {} if protocol == "socks4" else {"password": "p@ss:word"}
    with a_proxy(product, protocol, auth={"enabled": auth, "username": "ada", **password}) as proxy:
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": origin.url("/hello")})["test_result"]
        assert (result["status"], result["status_code"]) == ("success", 200), result
        nobody = f"http://127.0.0.1:{product.free_port()}/"
        result = product.data("POST", f"/proxies/{proxy['id']}/test", {"url": nobody})["test_result"]
        assert (result["status"], result["status_code"]) == ("failed", 502), result
        assert "to CONNECT" in result["error"]
