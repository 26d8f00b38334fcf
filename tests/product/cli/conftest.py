"""A signed-in command line, and a product that is stopped."""

from __future__ import annotations

import ctypes
import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.backup import archive
from tests.kit.folders import FOLDERS
from tests.kit.product import Product
from tests.product.cli.shell import Shell, signed_in
from tests.product.cli.sites import Site


@pytest.fixture
def shell(product: Product, tmp_path: Path) -> Shell:
    return signed_in(product, tmp_path / "home")


@pytest.fixture
def stranger(product: Product, tmp_path: Path) -> Shell:
    """A command line without a sign-in."""
    return Shell(tmp_path / "elsewhere", product.base_url)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="pf-", dir=FOLDERS) as made:
        yield Path(made)


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """The data of a product that was stopped: two proxies, one with an upstream that has a password, a webhook.

    Made once for all workers of a run.
    """
    base = tmp_path_factory.getbasetemp()
    made = (base if worker_id == "master" else base.parent) / "original"
    with made.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if not made.exists():
            _leave_data(made)
    return made


def _leave_data(target: Path) -> None:
    with Product() as product:
        credentials = {"username": "u", "password": "sesame 1"}
        upstream = {
            "protocol": "http",
            "host": "127.0.0.1",
            "port": 9,
            "auth": credentials,
        }
        product.proxy(name="chained", upstreams=[upstream], upstream_check={"enabled": False})
        product.proxy(name="plain")
        hook = {"name": "h", "url": "https://example.com/", "events": ["proxy.*"], "headers": {"X-Secret": "sesame 2"}}
        product.data("POST", "/webhooks", hook)
        assert product.stop() == 0
        shutil.copytree(product.data_dir, target.with_suffix(".part"))
    target.with_suffix(".part").rename(target)


@pytest.fixture(autouse=True)
def seal_with_less_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys of backups are sealed by a passphrase with a fraction of the usual work."""
    monkeypatch.setattr(archive, "N", 2**10)


@pytest.fixture
def site(folder: Path, original: Path) -> Site:
    """A stopped product with two proxies."""
    shutil.copytree(original, folder / "data")
    (folder / "data").chmod(0o700)
    return Site(folder, folder / "data")


@pytest.fixture(autouse=True)
def readable_to_itself() -> Iterator[None]:
    """A command that was run in this process may have hidden it from others of its user, as `run` does (prctl(2))."""
    yield
    set_dumpable = 4
    ctypes.CDLL(None).prctl(set_dumpable, 1, 0, 0, 0)
