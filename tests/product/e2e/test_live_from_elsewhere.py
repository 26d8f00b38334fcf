"""Live metrics by CURVE: the product makes its key, and the example program subscribes with one of its own."""

from __future__ import annotations

import pytest

from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.product.e2e.watcher import Watcher, watch

pytestmark = pytest.mark.product


def test_a_program_with_a_listed_key_sees_the_metrics(strict_product: Product, watcher: Watcher) -> None:
    product = strict_product
    assert watcher.file.stat().st_mode & 0o777 == 0o600
    detail = product.data_dir / "keys" / "metrics-curve.pub"
    server = wait_until(lambda: detail.exists() and detail.read_text().strip(), "the key is made")
    secret = detail.with_suffix(".key")
    assert secret.stat().st_mode & 0o777 == 0o600
    address = product.publish.replace("0.0.0.0", "127.0.0.1")
    seen = watch(address, "--once", "--server-key", server, "--key-file", str(watcher.file))
    assert seen.returncode == 0, seen.stderr
    assert "(all)" in seen.stdout
    assert secret.read_text().strip() not in product.log
