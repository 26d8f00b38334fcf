"""schemathesis against the running product, with the description that it serves: all checks.

python -m tests.conformance.run [--examples N] [--seconds N] [options of schemathesis]
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import requests

from tests.product import PASSWORD, Product

FOLDER = Path(__file__).parent
SETTINGS = {
    "PROXYFLEET_AUTH__MAX_LOGIN_ATTEMPTS": "1000",  # wrong credentials by the hundred are part of the run
    "PROXYFLEET_AUTH__JWT__ACCESS_TOKEN_TTL": "86400",
    "PROXYFLEET_PROXY__TEST_URL": "http://127.0.0.1:1/",
}


class Outcome(NamedTuple):
    """How a run ended."""

    status: int
    cases: int
    output: str


def run(product: Product, options: list[str]) -> Outcome:
    """One run. Options are those of `schemathesis run`."""
    known = populate(product)
    program = Path(sys.executable).with_name("schemathesis")
    command = [str(program), "--config-file", str(FOLDER / "schemathesis.toml"), "run"]
    command += [f"{product.base_url}/api/v1/openapi.json"]
    environment = {
        **product.environment(),
        "SCHEMATHESIS_HOOKS": "tests.conformance.harmless",
        "CONFORMANCE_BASE": product.base_url,
        "CONFORMANCE_PASSWORD": PASSWORD,
        **{f"CONFORMANCE_{name.upper()}": value for name, value in known.items()},
        "PYTHONPATH": str(FOLDER.parent.parent),
    }
    done = subprocess.run([*command, *options], env=environment, cwd=product.directory, capture_output=True, text=True)
    counted = re.search(r"([0-9]+) generated", done.stdout)
    return Outcome(done.returncode, int(counted[1]) if counted else 0, done.stdout + done.stderr)


def populate(product: Product) -> dict[str, str]:
    """Somebody who runs it, and resources to run it on; the environment of the hooks by name."""
    person = {"username": "conformance", "password": PASSWORD, "role": "administrator"}
    user = product.data("POST", "/users", person)["user"]
    other = product.data("POST", "/users", {"username": "somebody", "password": PASSWORD})["user"]
    proxy = product.proxy()["id"]
    product.data("POST", f"/proxies/{proxy}/accounts", {"username": "alice", "password": PASSWORD})
    known = {"proxy_id": proxy, "user_id": other["id"], "username": "alice", "file": "index.html"}
    return {"user": user["id"], "known": json.dumps(known), "token": _token(product)}


def _token(product: Product) -> str:
    body = {"username": "conformance", "password": PASSWORD}
    answer: Any = requests.post(f"{product.base_url}/api/v1/auth/login", json=body, timeout=30).json()
    return str(answer["data"]["access_token"])


def main() -> int:
    """The long run: prints what schemathesis says; 0 without failures."""
    parser = argparse.ArgumentParser(prog="scripts/schemathesis", description=__doc__)
    parser.add_argument("--examples", type=int, default=20, help="cases for each operation and phase")
    parser.add_argument("--cases", type=int, default=5000, help="fewer than these are a failure")
    chosen, options = parser.parse_known_args()
    with Product(SETTINGS) as product:
        outcome = run(product, ["--max-examples", str(chosen.examples), *options])
    sys.stdout.write(outcome.output)
    if outcome.cases < chosen.cases:
        sys.stderr.write(f"only {outcome.cases} cases were generated, not {chosen.cases}\n")
        return 1
    return outcome.status


if __name__ == "__main__":
    raise SystemExit(main())
