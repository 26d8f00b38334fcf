"""schemathesis against the running product, with the description that it serves: all checks.

python -m tests.conformance.run [--examples N] [--seconds N] [options of schemathesis]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import requests

from tests.kit.compiled import CHECKOUT
from tests.kit.fake_provider import CLIENT_ID, CLIENT_SECRET, REDIRECT, FakeProvider
from tests.kit.folders import ROOT
from tests.kit.product import PASSWORD, Product

FOLDER = Path(__file__).parent
SETTINGS = {
    "AUTH__MAX_LOGIN_ATTEMPTS": "1000",  # wrong credentials by the hundred are part of the run
    "AUTH__JWT__ACCESS_TOKEN_TTL": "86400",
    "PROXY__TEST_URL": "http://127.0.0.1:1/",
    "AUTH__OAUTH2__ENABLED": "true",
    "AUTH__OAUTH2__PROVIDER": "custom",
    "AUTH__OAUTH2__CLIENT_ID": CLIENT_ID,
    "AUTH__OAUTH2__CLIENT_SECRET": CLIENT_SECRET,
    "AUTH__OAUTH2__REDIRECT_URI": REDIRECT,
}


class Outcome(NamedTuple):
    """How a run ended."""

    status: int
    cases: int
    output: str


@contextmanager
def trying() -> Iterator[Product]:
    """A product that is ready for a run, with everything switched on that has operations."""
    provider = FakeProvider()
    settings = {**SETTINGS, "AUTH__OAUTH2__DISCOVERY_URL": provider.discovery_url}
    try:
        with Product({f"PROXYFLEET_{name}": value for name, value in settings.items()}) as product:
            yield product
    finally:
        provider.close()


def run(product: Product, options: list[str], more: str = "") -> Outcome:
    """One run. Options are those of `schemathesis run`, `more` are settings beside those of `schemathesis.toml`."""
    known = populate(product)
    description = f"{product.base_url}/api/v1/openapi.json"
    product.session.get(description, timeout=120)  # made at the first request, for which schemathesis has ten seconds
    program = Path(sys.executable).with_name("schemathesis")
    settings = product.directory / "schemathesis.toml"
    settings.write_text((FOLDER / "schemathesis.toml").read_text() + more)
    command = [str(program), "--config-file", str(settings), "run"]
    command += [description]
    environment = {
        **product.environment(),
        "SCHEMATHESIS_HOOKS": "tests.conformance.harmless",
        "CONFORMANCE_BASE": product.base_url,
        "CONFORMANCE_PASSWORD": PASSWORD,
        **{f"CONFORMANCE_{name.upper()}": value for name, value in known.items()},
        "HYPOTHESIS_STORAGE_DIRECTORY": str(CHECKOUT / ".hypothesis"),  # its tables of characters take seconds to make
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run([*command, *options], env=environment, cwd=product.directory, capture_output=True, text=True)
    counted = re.search(r"([0-9]+) generated", done.stdout)
    return Outcome(done.returncode, int(counted[1]) if counted else 0, done.stdout + done.stderr)


def populate(product: Product) -> dict[str, str]:
    """A user for the run, and resources; the environment of the hooks by name."""
    person = {"username": "conformance", "password": PASSWORD, "role": "administrator"}
    user = product.data("POST", "/users", person)["user"]
    other = product.data("POST", "/users", {"username": "someuser", "password": PASSWORD})["user"]
    proxy, with_accounts = product.proxy()["id"], product.proxy()["id"]
    product.data("POST", f"/proxies/{with_accounts}/accounts", {"username": "alice", "password": PASSWORD})
    webhook, delivery = _webhook(product)
    known = {
        "proxy_id": proxy,
        "user_id": other["id"],
        "webhook_id": webhook,
        "delivery_id": delivery,
        "username": "alice",
        "with_accounts": with_accounts,
        "file": "index.html",
    }
    return {"user": user["id"], "known": json.dumps(known), "token": _token(product)}


def _webhook(product: Product) -> tuple[str, str]:
    """A webhook without a receiver, and a delivery to it."""
    body = {"name": "conformance", "url": "http://127.0.0.1:1/", "events": ["webhook.disabled"]}
    webhook = product.data("POST", "/webhooks", body)["webhook"]["id"]
    product.data("POST", f"/webhooks/{webhook}/test")
    return webhook, product.data("GET", f"/webhooks/{webhook}/deliveries")["deliveries"][0]["id"]


def _token(product: Product) -> str:
    body = {"username": "conformance", "password": PASSWORD}
    response: Any = requests.post(f"{product.base_url}/api/v1/auth/login", json=body, timeout=30).json()
    return str(response["data"]["access_token"])


def main() -> int:
    """The long run: prints what schemathesis says; 0 without failures."""
    parser = argparse.ArgumentParser(prog="scripts/schemathesis", description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="cases for each operation and phase")
    parser.add_argument("--cases", type=int, default=5000, help="fewer than these are a failure")
    chosen, options = parser.parse_known_args()
    with trying() as product:
        outcome = run(product, ["--max-examples", str(chosen.examples), *options])
    sys.stdout.write(outcome.output)
    if outcome.cases < chosen.cases:
        sys.stderr.write(f"only {outcome.cases} cases were generated, not {chosen.cases}\n")
        return 1
    return outcome.status


if __name__ == "__main__":
    raise SystemExit(main())
