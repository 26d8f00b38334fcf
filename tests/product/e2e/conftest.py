"""Products for end-to-end tests that are configured unlike the shared one; one of each for a worker."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.kit.webhook_targets import Target
from tests.product.e2e.cramped_product import CrampedProduct
from tests.product.e2e.watcher import Watcher

WITHOUT_LOW_PORTS = ("setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-net_bind_service")
"""Root without the capability is refused low ports like anybody else; others don't have it anyway."""


@pytest.fixture(scope="session")
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Watcher:
    """A program with a key of its own, which it has made."""
    return Watcher(tmp_path_factory.mktemp("watcher") / "watcher.key")


@pytest.fixture(scope="session")
def strict_product(watcher: Watcher) -> Iterator[Product]:
    """Without exceptions from the egress guard, without private addresses, and without the right to low ports.

    It publishes live metrics at all addresses, and to the watcher alone.
    """
    is_root = os.geteuid() == 0
    if is_root and shutil.which("setpriv") is None:
        pytest.skip("setpriv is not installed")
    env = {"PROXYFLEET_PROXY__EGRESS_ALLOW": "[]", "PROXYFLEET_METRICS__CURVE_CLIENTS": json.dumps([watcher.public])}
    product = Product(env, wrapper=WITHOUT_LOW_PORTS if is_root else ())
    product.publish = f"tcp://0.0.0.0:{free_port('0.0.0.0')}"
    with product:
        yield product


@pytest.fixture(scope="session")
def _cramped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CrampedProduct]:
    disk = tmp_path_factory.mktemp("small")
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0700", "none", str(disk)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs root and the right to mount a small file system")
    allowed = "[webhooks]\nallow_private = true\nretry_schedule = [0.1, 0.1]\n"
    product = Product(config=allowed)
    product.data_dir = disk / "data"
    with product:
        yield CrampedProduct(product, disk)
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
def target() -> Iterator[Target]:
    with Target() as made:
        yield made


@pytest.fixture
def cramped(_cramped: CrampedProduct) -> Iterator[CrampedProduct]:
    """There is room at first."""
    _cramped.product.forget_log()
    yield _cramped
    _cramped.clear()
