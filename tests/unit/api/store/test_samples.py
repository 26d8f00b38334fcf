"""This program on the data of every released version: all is there, and works; and tomorrow's program on them."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from config import VERSION
from config.files.data_format import read_mark
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target
from tests.samples import make

pytestmark = pytest.mark.product

VERSIONS = sorted(path.parent.name for path in make.SAMPLES.glob("*/seen.json"))


class Tomorrow(Product):
    """A later release (`tests.kit.later_release`)."""

    def command(self) -> list[str]:
        return [word.replace("supervisor", "tests.kit.later_release") for word in super().command()]


def seen(version: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((make.SAMPLES / version / "seen.json").read_text())
    return found


@contextmanager
def on_sample(version: str, kind: type[Product] = Product) -> Iterator[Product]:
    """A product that isn't started yet, on a copy of the sample; with the target of its webhook."""
    product = make.with_certificate(kind(make.ENVIRONMENT))
    shutil.copytree(make.SAMPLES / version / "data", product.data_dir)
    try:
        with make.alone(), Target(address=(make.HOST, make.HOOK_PORT)) as product.target:  # type: ignore[attr-defined]
            yield product
    finally:
        product.discard()


def missing(expected: Any, found: Any, where: str = "") -> list[str]:
    """Where `found` doesn't have what `expected` has; more than that is good."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return [each for name, value in expected.items() for each in missing(value, found.get(name), f"{where}.{name}")]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        pairs = enumerate(zip(expected, found, strict=True))
        return [each for number, (one, other) in pairs for each in missing(one, other, f"{where}[{number}]")]
    return [] if expected == found else [f"{where}: {expected!r} became {found!r}"]


def lost(product: Product, version: str) -> list[str]:
    """What the version's own API said and this one doesn't. What a delivery has come to may have changed."""
    problems = []
    for path, answer in seen(version)["answers"].items():
        expected, found = make.steady(answer), make.steady(product.data("GET", path))
        if "/deliveries" in path:
            for each in (expected, found):
                each["deliveries"] = [{name: one[name] for name in ("id", "event")} for one in each["deliveries"]]
        problems += missing(expected, found, path)
    return problems


def content(folder: Path) -> dict[str, str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def command(product: Product, *arguments: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "supervisor", *arguments, "--data-dir", str(product.data_dir)]
    return subprocess.run(line, env=product.environment(), capture_output=True, text=True, timeout=300)


def test_there_is_a_sample_of_the_present_version() -> None:
    assert VERSION in VERSIONS


@pytest.mark.parametrize("version", VERSIONS)
def test_everything_of_a_released_version_is_there_and_its_secrets_are_good(version: str) -> None:
    secrets = seen(version)["secrets"]
    origin = Origin()
    with on_sample(version) as product, serving(origin):
        product.start()
        assert lost(product, version) == []
        counted = make.counted(product)  # a parent's first check may have come, which is a request, too
        assert {name: number for name, number in seen(version)["requests"].items() if counted[name] < number} == {}
        assert (
            product.session.get(
                f"{product.base_url}/api/v1/proxies", headers={"X-API-Key": secrets["api_key"]}, timeout=60
            ).status_code
            == 200
        )
        login = {"username": secrets["user"]["username"], "password": secrets["user"]["password"]}
        assert product.session.post(f"{product.base_url}/api/v1/auth/login", json=login, timeout=60).status_code == 200
        traffic_goes_through(product, origin)
        webhooks_are_signed(product, secrets["webhook_secret"])
        assert product.stop() == 0
        verified = command(product, "audit", "verify")
        assert verified.returncode == 0, verified.stderr


def traffic_goes_through(product: Product, origin: Origin) -> None:
    """With the password of an account, and through a parent whose password was sealed."""
    running = wait_until(lambda: all_run(product), "all active proxies run")
    used = account_usage(product, running["sample-http"])
    make.fetch(origin, 1)
    wait_until(lambda: account_usage(product, running["sample-http"]) > used > 0, "the account has used more")
    path = f"/proxies/{running['sample-https']}/test"
    result = product.data("POST", path, {"url": origin.url("/hello")})["test_result"]
    assert (result["status"], result["parent"]) == ("success", "above"), result


def all_run(product: Product) -> dict[str, str] | None:
    proxies = product.data("GET", "/proxies?per_page=100&status=active")["proxies"]
    states = {each["name"]: each["runtime"]["state"] for each in proxies}
    return {each["name"]: each["id"] for each in proxies} if set(states.values()) == {"running"} else None


def account_usage(product: Product, proxy_id: str) -> int:
    name = make.ACCOUNT["username"]
    return int(product.data("GET", f"/proxies/{proxy_id}/accounts/{name}")["account"]["usage"]["bytes"])


def webhooks_are_signed(product: Product, secret: str) -> None:
    """A delivery that waited, once more; with the secret of that time."""
    (webhook,) = product.data("GET", "/webhooks")["webhooks"]
    path = f"/webhooks/{webhook['id']}/deliveries"
    deliveries = product.data("GET", f"{path}?limit=100")["deliveries"]
    waited = next(each["id"] for each in deliveries if each["event"] == "user.created")
    product.data("POST", f"{path}/{waited}/redeliver")
    target: Target = product.target  # type: ignore[attr-defined]
    received = wait_until(
        lambda: next((each for each in list(target.received) if each.content["type"] == "user.created"), None),
        "it is delivered",
    )
    received.verified(secret)
    assert received.headers["x-token"] == "the hook's sample"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_later_release_brings_it_forward_and_this_one_refuses_that_and_takes_back_what_was_kept(version: str) -> None:
    with on_sample(version, Tomorrow) as product:
        product.start()
        tags = {proxy["name"]: proxy["tags"] for proxy in product.data("GET", "/proxies?per_page=100")["proxies"]}
        assert tags["sample-http"] == ["sample", "web", "tomorrow"]
        assert all("tomorrow" in each for each in tags.values())
        assert [each for each in lost(product, version) if ".tags" not in each] == []
        assert product.stop() == 0
        assert "from format 1 to 3" in product.log
        assert_today_refuses(product)
        for part in (product.data_dir / "before-1").iterdir():
            target = product.data_dir / part.name
            shutil.rmtree(target) if target.is_dir() else target.unlink()
            part.rename(target)
        product.__class__ = Product
        product.forget_token()
        product.start()
        assert lost(product, version) == []


def assert_today_refuses(product: Product) -> None:
    before = content(product.data_dir)
    for arguments in (
        ("serve", "--run-dir", str(product.run_dir), "--port", str(product.port)),
        ("check-config",),
        ("audit", "verify"),
        ("reset-password", "admin"),
        ("reset-settings",),
        ("rotate-signing-key",),
    ):
        refused = command(product, *arguments)
        assert refused.returncode == 1, arguments
        assert "have format 3" in refused.stderr, arguments
        assert "Install" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert content(product.data_dir) == before
    mark = read_mark(product.data_dir)
    assert mark is not None
    assert mark.format == 3
