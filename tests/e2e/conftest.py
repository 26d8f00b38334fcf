"""One running product and one origin for all end-to-end tests of a worker; a new proxy for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.origins import Origin, serving
from tests.product import Product


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    """Shared by all tests of a worker that break nothing of it."""
    with Product() as running:
        yield running


@pytest.fixture
def own_product() -> Iterator[Product]:
    """One that the test may break."""
    with Product() as running:
        yield running


@pytest.fixture(scope="session")
def origin() -> Iterator[Origin]:
    server = Origin()
    with serving(server):
        yield server


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    """A running http proxy, in detail form; deleted after the test if it is still there."""
    made = product.proxy()
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")
