"""What processes must not load: each module costs memory and start time in every one of them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.kit.folders import ROOT

HEAVY = ("pydantic", "falcon", "requests", "tinydb", "rich", "typer", "lmdb", "zoneinfo", "dns", "h2", "maxminddb")


@pytest.mark.parametrize(
    "module",
    [
        "actors.forwarding.actor",
        "actors.logs.actor",
        "actors.metrics.actor",
        "actors.webhooks.actor",
        "actors.pools.actor",
    ],
)
def test_an_actor_starts_without_models_and_the_libraries_of_the_api(module: str) -> None:
    code = f"import sys, {module}; print([each for each in {HEAVY!r} if each in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "[]"
