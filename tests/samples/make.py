"""Make the sample of the present version's data through the running product: `python -m tests.samples.make`.

Everything that is kept is in it at least once. Addresses are on 127.77.0.1, where no other program listens.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import requests

from config import VERSION
from config.text.formatting import timestamp_text
from tests.kit.certificates import make_pair
from tests.kit.http_origins import Origin, serving
from tests.kit.product import PASSWORD, Product
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Received, Target

HOST = "127.77.0.1"
PORTS = {"http": 21_001, "https": 21_002, "socks4": 21_003, "socks5": 21_004, "parent": 21_005, "idle": 21_006}
HOOK_PORT = 21_010
SAMPLES = Path(__file__).resolve().parent
ACCOUNT = {"username": "ada", "password": "ada's word of the sample"}
PARENT = {"username": "up", "password": "the parent's word of the sample"}
USER = {"username": "grace", "password": "grace's word of the sample"}
REQUESTS = 7

ENVIRONMENT = {
    "PROXYFLEET_WEBHOOKS__ALLOW_PRIVATE": "true",
    "PROXYFLEET_WEBHOOKS__RETENTION_DAYS": "3650",
    "PROXYFLEET_PROXY__EGRESS_ALLOW": '["127.0.0.0/8"]',
}
VOLATILE = {
    *("runtime", "stats", "uptime", "last_used", "last_login", "updated_at", "server"),
    *("delivery_status", "attempts", "next_attempt_at", "has_more", "head", "tail_cursor"),
}
"""Fields of answers that a restart changes: with the first check of a parent there is one more record."""


def steady(value: Any) -> Any:
    """An answer without what is volatile."""
    if isinstance(value, dict):
        return {name: steady(each) for name, each in value.items() if name not in VOLATILE}
    return [steady(each) for each in value] if isinstance(value, list) else value


def busy(_number: int, received: Received) -> tuple[int, dict[str, str]]:
    """A target that takes everything but one kind of event, which therefore waits in the outbox."""
    return (503 if received.content["type"] == "user.created" else 200), {}


def with_certificate(product: Product) -> Product:
    """One for the proxy of protocol `https`: certificates are no data."""
    cert, key = make_pair(product.directory)
    product.add_environment(
        {
            "PROXYFLEET_SERVER__TLS__CERT_FILE": cert,
            "PROXYFLEET_SERVER__TLS__KEY_FILE": key,
        }
    )
    return product


@contextmanager
def alone() -> Iterator[None]:
    """One at a time on this machine: the addresses are the same in all."""
    with (Path(tempfile.gettempdir()) / f"pf-sample-{os.getuid()}").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def make_proxies(product: Product) -> dict[str, dict[str, Any]]:
    """One of each protocol, a parent and one that is stopped; by the names of `PORTS`."""
    auth = {"enabled": True, **PARENT}
    upstream = {"protocol": "http", "host": HOST, "port": PORTS["parent"], "auth": PARENT, "name": "above"}
    access = {"deny_destinations": ["*.example.com"], "allow_clients": ["127.0.0.0/8"]}
    account = {**ACCOUNT, "quota": {"bytes": 10**9, "period": "total"}, "limits": {"requests_per_minute": 600}}
    fields: dict[str, dict[str, Any]] = {
        "parent": {"protocol": "http", "auth": auth},
        "http": {"protocol": "http", "accounts": [account], "access": access, "tags": ["sample", "web"]},
        "https": {"protocol": "https", "upstreams": [upstream], "settings": {"timeout": 44, "max_connections": 33}},
        "socks4": {"protocol": "socks4", "auth": {"enabled": True, "username": "four"}},
        "socks5": {"protocol": "socks5", "auth": auth, "limits": {"bandwidth_out": 10**8}},
        "idle": {"protocol": "http"},
    }
    made = {
        name: product.proxy(name=f"sample-{name}", host=HOST, port=PORTS[name], **more) for name, more in fields.items()
    }
    product.data("POST", f"/proxies/{made['idle']['id']}/stop")
    gone = product.proxy(name="sample-gone")
    product.data("DELETE", f"/proxies/{gone['id']}")
    return made


def fetch(origin: Origin, count: int = REQUESTS) -> None:
    """Requests with the account through the proxy `http`."""
    proxy = f"http://{ACCOUNT['username']}:{requests.utils.quote(ACCOUNT['password'])}@{HOST}:{PORTS['http']}"
    with requests.Session() as session:
        session.trust_env = False
        for _ in range(count):
            answer = session.get(origin.url("/hello"), proxies={"http": proxy}, timeout=10)
            assert answer.status_code == 200, answer.text


def make_all(product: Product, target: Target, origin: Origin) -> dict[str, Any]:
    """Everything; the secrets."""
    hook = {"name": "sample-hook", "url": target.url, "events": ["*"], "headers": {"X-Token": "the hook's sample"}}
    webhook = product.data("POST", "/webhooks", hook)["webhook"]
    make_proxies(product)
    user = {**USER, "email": "grace@example.com", "role": "operator", "permissions": []}
    headers = {"Idempotency-Key": "sample-user"}
    assert product.api("POST", "/users", user, headers=headers).status_code == 201
    key = product.data("POST", "/api-keys", {"name": "sample-key", "permissions": ["proxy.read", "metrics.read"]})[
        "key"
    ]
    product.data("PATCH", "/settings", {"proxy": {"default_timeout": 17}, "auth": {"max_login_attempts": 9}})
    fetch(origin)
    return {"webhook_secret": webhook["secret"], "api_key": key, "user": USER, "admin": PASSWORD}


def paths_of(product: Product, began: float) -> list[str]:
    """What is asked, at the making and by the test. The clock may be set back by then, so both ends are given."""
    time_range = f"start_time={timestamp_text(began - 1)}&end_time={timestamp_text(time.time() + 1)}"
    proxies = [each["id"] for each in product.data("GET", "/proxies?per_page=100")["proxies"]]
    webhooks = [each["id"] for each in product.data("GET", "/webhooks")["webhooks"]]
    return [
        *(f"/proxies/{each}" for each in proxies),
        *(f"/proxies/{each}/accounts" for each in proxies),
        *("/users", "/api-keys", "/webhooks", "/settings"),
        *(f"/webhooks/{each}/deliveries?limit=100" for each in webhooks),
        f"/audit?{time_range}&limit=100",
        f"/logs?{time_range}&limit=1000",
    ]


def counted(product: Product) -> dict[str, int]:
    """Requests by the names of proxies."""
    proxies = product.data("GET", "/proxies?per_page=100")["proxies"]
    return {each["name"]: each["stats"]["total_requests"] for each in proxies}


def recorded(product: Product, began: float) -> bool:
    """Are the records and counters of the requests where they are kept?"""
    logs = product.data("GET", f"/logs?start_time={timestamp_text(began - 1)}&limit=1000")["logs"]
    return len(logs) >= REQUESTS and counted(product)["sample-http"] >= REQUESTS


def one_waits(product: Product) -> bool:
    """Was the one that isn't taken tried?"""
    (webhook,) = product.data("GET", "/webhooks")["webhooks"]
    deliveries = product.data("GET", f"/webhooks/{webhook['id']}/deliveries?limit=100")["deliveries"]
    return any(each["status"] == "waiting" and each["attempts"] for each in deliveries)


def main() -> None:
    """The sample of this version, in place of one that is there."""
    folder = SAMPLES / VERSION
    product, origin = with_certificate(Product(ENVIRONMENT)), Origin()
    with alone(), serving(origin), Target(busy, (HOST, HOOK_PORT)) as target, product:
        began = time.time()
        secrets = make_all(product, target, origin)
        wait_until(lambda: recorded(product, began), "records and counters are kept")
        wait_until(lambda: one_waits(product), "one delivery waits")
        answers = {path: steady(product.data("GET", path)) for path in paths_of(product, began)}
        requests_by_proxy = counted(product)
        assert product.stop() == 0
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(product.data_dir, folder / "data", ignore=shutil.ignore_patterns("lock", "*-shm"))
        seen = {"version": VERSION, "secrets": secrets, "answers": answers, "requests": requests_by_proxy}
        (folder / "seen.json").write_text(json.dumps(seen, indent=1, sort_keys=True) + "\n")
    print(f"{folder}: {sum(path.stat().st_size for path in folder.rglob('*') if path.is_file())} bytes")


if __name__ == "__main__":
    main()
