"""One running product and one origin for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.kit.http_origins import Origin, serving
from tests.kit.name_servers import ScriptedNameServer, zone
from tests.kit.product import Product
from tests.kit.secured_product import NAME, SecuredProduct
from tests.kit.shared_product import shared_product
from tests.kit.spare_product import SpareProduct


@pytest.fixture(scope="session")
def shared_origin() -> Iterator[Origin]:
    server = Origin()
    with serving(server):
        yield server


@pytest.fixture(scope="session")
def origin(shared_origin: Origin) -> Origin:
    """Modules may have another one of this name."""
    return shared_origin


@pytest.fixture(scope="session")
def product(shared_origin: Origin) -> Iterator[Product]:
    """Shared by all tests of a worker that break nothing of it.

    A test makes proxies, accounts and webhooks of its own, with names of its own, and puts back what it sets.
    """
    with shared_product(shared_origin.url("/ip")) as running:
        yield running


@pytest.fixture(scope="session")
def _spares() -> Iterator[list[SpareProduct]]:
    """The spare product of the worker, once a test has asked for it."""
    spares: list[SpareProduct] = []
    yield spares
    for spare in spares:
        spare.discard()


@pytest.fixture
def own_product(_spares: list[SpareProduct], shared_origin: Origin) -> Iterator[SpareProduct]:
    """The one for tests that kill, stop or start it; others find it empty."""
    product = _spares.pop() if _spares else SpareProduct(shared_origin.url("/ip"))
    try:
        product.begin()
        yield product
        if product.reusable:
            _spares.append(product)
    finally:
        if not _spares:
            product.discard()


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredProduct]:
    """Shared like `product`; its API speaks TLS, and its name server knows a name. Tests may stop and start it."""
    with (
        ScriptedNameServer(zone({NAME: ("127.0.0.1",)}, ttl=600)) as names,
        SecuredProduct(tmp_path_factory.mktemp("tls"), names) as running,
    ):
        yield running


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    """A running http proxy, in detail form; deleted after the test if it is still there."""
    made = product.proxy()
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")
