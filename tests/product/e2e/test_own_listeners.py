"""No proxy reaches a listener of the product itself, though all of loopback is excepted from the guard."""

from __future__ import annotations

from contextlib import suppress

import psutil
import pytest

from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.wire import Client

pytestmark = [pytest.mark.product, pytest.mark.filterwarnings("ignore:Unverified HTTPS request")]


def listeners(product: Product) -> set[int]:
    """The ports at which any process of the product listens."""
    found = set()
    for process in product.processes():
        with suppress(psutil.NoSuchProcess):  # one of a few moments has ended
            connections = process.net_connections("tcp")
            found |= {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}
    return found


def status_of(port: int, target: int) -> tuple[int, str]:
    with Client(port) as client:
        response = client.get(f"http://127.0.0.1:{target}/")
        return response.status, response.fields.get("proxy-status", "")


@pytest.mark.parametrize("configured", ["own_product", "secured"], ids=["a port that is named", "any port, and TLS"])
def test_every_listening_socket_of_the_product_is_refused_through_a_proxy(
    request: pytest.FixtureRequest, configured: str
) -> None:
    product: Product = request.getfixturevalue(configured)
    through, other = product.proxy(), product.proxy(protocol="socks5")
    # the API, two proxies, and the live metrics
    wait_until(lambda: len(listeners(product)) == 4, "all listen")
    for target in sorted(listeners(product)):
        refused = wait_until(lambda to=target: _refusal(through["port"], to), f"port {target} is refused")
        assert "this service itself" in refused
    for each in (through, other):
        product.data("DELETE", f"/proxies/{each['id']}")


def _refusal(through: int, target: int) -> str:
    status, reported = status_of(through, target)
    return reported if status == 403 else ""
