"""One running product for the command line's tests of a worker, and somebody who is signed in to it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Shell, shell_of
from tests.product import Product


@pytest.fixture(scope="session")
def product() -> Iterator[Product]:
    with Product() as running:
        yield running


@pytest.fixture
def shell(product: Product, tmp_path: Path) -> Shell:
    return shell_of(product, tmp_path / "home")


@pytest.fixture
def stranger(product: Product, tmp_path: Path) -> Shell:
    """Somebody who isn't signed in."""
    return Shell(tmp_path / "elsewhere", product.base_url)


@pytest.fixture
def proxy(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy()
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")
