"""Live metrics by CURVE: the product makes its key, and the example program subscribes with one of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.folders import ROOT
from tests.kit.ports import free_port
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = pytest.mark.product

PROGRAM = ROOT / "scripts" / "watch_metrics.py"


def watch(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, stdin=subprocess.DEVNULL)


def test_a_program_with_a_listed_key_sees_the_metrics(tmp_path: Path) -> None:
    own = tmp_path / "watcher.key"
    public = watch("--new-key", str(own)).stdout.strip()
    assert own.stat().st_mode & 0o777 == 0o600
    env = {"PROXYFLEET_METRICS__CURVE_CLIENTS": json.dumps([public])}
    product = Product(env=env)
    port = free_port("0.0.0.0")
    product.publish = f"tcp://0.0.0.0:{port}"
    with product:
        detail = product.data_dir / "keys" / "metrics-curve.pub"
        server = wait_until(lambda: detail.exists() and detail.read_text().strip(), "the key is made")
        secret = detail.with_suffix(".key")
        assert secret.stat().st_mode & 0o777 == 0o600
        seen = watch(f"tcp://127.0.0.1:{port}", "--once", "--server-key", server, "--key-file", str(own))
        assert seen.returncode == 0, seen.stderr
        assert "(all)" in seen.stdout
        assert secret.read_text().strip() not in product.log
