"""Sign-ins of clients at a proxy: the first, those that are known, those that are refused.

Beside ours stands squid with basic_ncsa_auth, whose helper reads a file of users: with hashes of MD5, as `htpasswd`
makes them by default, and with hashes of bcrypt as dear as ours.
"""

from __future__ import annotations

import base64
import http.client
import itertools
import shutil
import statistics
import subprocess
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import bcrypt

from benchmarks.ours import Product
from benchmarks.peers import Origin, Program, program
from benchmarks.processes import BenchError, free_port, wait_until
from benchmarks.report import Bar, Row
from config.passwords import COST

FEW = 10
PASSWORD = "a password for the benchmark"
HELPER = Path("/usr/lib/squid/basic_ncsa_auth")
TIMEOUT = 30.0
ATTEMPTS = 8
"""Wrong passwords from one address: below what a proxy takes for guessing."""
ADDRESSES = 2
"""Of loopback, from which refused sign-ins come."""
KINDS = {
    "first": "first request of a client, with the check of its password",
    "again": "one that is known",
    "secret": "first request with the secret of a credential",
}

SignIns = dict[str, float]
"""Medians in ms by kind."""


def sign_ins(port: int, origin: Origin, product: Product | None = None) -> SignIns:
    """Of `KINDS`; secrets with our product alone."""
    names = [f"account-{number:06}" for number in range(1, FEW)]
    found = {kind: median_ms([request(port, origin, name, PASSWORD) for name in names]) for kind in ("first", "again")}
    if product is not None:
        paths = [f"/accounts/acc_{number:016x}/credentials" for number in range(1, FEW)]
        secrets = [product.call("POST", path, {"ttl": 900})["secret"] for path in paths]
        pairs = zip(names, secrets, strict=True)
        found["secret"] = median_ms([request(port, origin, name, secret) for name, secret in pairs])
    return found


def rows_of(ours: dict[int, SignIns], accounts: int, peers: dict[str, dict[int, SignIns]]) -> list[Row]:
    """Each kind with few and with many accounts, beside each peer, and how much ours has grown."""
    rows = []
    for kind, name in KINDS.items():
        for count, peer in itertools.product((FEW, accounts), peers or {"": {}}):
            theirs = peers.get(peer, {}).get(count, {}).get(kind)
            if theirs is not None or peer == next(iter(peers), ""):
                rows.append(Row(f"{name}, {count:,} accounts", "ms", ours[count][kind], peer if theirs else "", theirs))
        grown = ours[accounts][kind] / ours[FEW][kind]
        rows.append(Row(f"{name}: {accounts:,} accounts beside {FEW}", "x", grown, bar=Bar(1.3)))
    return rows


# --- refusals ---


def refusals(product: Product, port: int) -> list[Row]:
    """How long refusals take, whatever the name: without imported hashes, and with one of each of two costs."""
    alone = _refused(port, ["unknown", "account-000001"])
    for name, cost in (("cheap", 5), ("dear", 12)):
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(cost)).decode()
        product.call("POST", "/accounts", {"username": name, "password_hash": hashed})
    beside = _refused(port, ["unknown", "account-000001", "cheap", "dear"])
    names = {
        "unknown": "an unknown name",
        "account-000001": "an account of ours",
        "cheap": "an imported hash of cost 5",
        "dear": "an imported hash of cost 12",
    }
    return [
        *(Row(f"refusal of {names[name]}", "ms", value) for name, value in alone.items()),
        *(Row(f"refusal of {names[name]}, beside imported hashes", "ms", value) for name, value in beside.items()),
    ]


def _refused(port: int, names: Sequence[str]) -> SignIns:
    """Medians by name; the kinds take turns, so that the machine's moods are those of all."""
    took: dict[str, list[float]] = {name: [] for name in names}
    for address, number in itertools.product(range(ADDRESSES), range(ATTEMPTS)):
        for place, name in enumerate(names):
            source = f"127.{len(names)}.{place}.{address + 1}"
            took[name].append(_refusal(port, name, f"wrong {number}", source))
    return {name: median_ms(each) for name, each in took.items()}


def _refusal(port: int, user: str, password: str, source: str) -> float:
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    began = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, TIMEOUT, (source, 0))) as client:
        client.request("GET", "http://127.0.0.1:9/none", headers={"Proxy-Authorization": f"Basic {pair}"})
        response = client.getresponse()
        response.read()
    if response.status != http.HTTPStatus.PROXY_AUTHENTICATION_REQUIRED:
        raise BenchError(f"a wrong password of {user}: {response.status}")
    return time.monotonic() - began


# --- squid ---


def squids(folder: Path, origin: Origin, counts: Sequence[int]) -> dict[str, dict[int, SignIns]]:
    """The same of squid, by kind of hash and number of users; empty where it is not installed."""
    if not HELPER.exists() or shutil.which("openssl") is None:
        return {}
    command = ["openssl", "passwd", "-apr1", PASSWORD]
    md5 = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    own = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(COST)).decode()
    hashes = {"squid, MD5": md5, "squid, bcrypt": own}
    return {name: {count: _squid(folder, origin, hashed, count) for count in counts} for name, hashed in hashes.items()}


def _squid(folder: Path, origin: Origin, hashed: str, count: int) -> SignIns:
    own = folder / f"squid-{count}-{hashed[1:4].strip('$')}"
    own.mkdir(mode=0o755)
    users = own / "users"
    users.write_text("".join(f"account-{number:06}:{hashed}\n" for number in range(count)))
    users.chmod(0o644)
    peer = _SquidWithUsers(own, users)
    try:
        wait_until(lambda: _responds(peer.port, origin), "squid checks passwords", 60.0)
        return sign_ins(peer.port, origin)
    finally:
        peer.end()


class _SquidWithUsers(Program):
    """squid that wants credentials, with one helper."""

    def __init__(self, folder: Path, users: Path) -> None:
        folder.chmod(0o777)  # it gives up root's rights before it opens its log
        port = free_port()
        configuration = f"""
http_port 127.0.0.1:{port}
auth_param basic program {HELPER} {users}
auth_param basic children 1 startup=1
acl known proxy_auth REQUIRED
http_access allow known
cache deny all
access_log none
cache_log {folder}/squid-cache.log
pid_filename none
netdb_filename none
pinger_enable off
coredump_dir none
shutdown_lifetime 0 seconds
"""
        super().__init__("squid", folder, port, [program("squid"), "-N", "-f", f"{folder}/squid.conf"], configuration)


def _responds(port: int, origin: Origin) -> bool:
    try:
        request(port, origin, "account-000000", PASSWORD)
    except (OSError, BenchError, http.client.HTTPException):
        return False
    return True


# --- requests and figures ---


def request(port: int, origin: Origin, user: str, password: str) -> float:
    """Seconds of one request on a new connection, which gets 404 from the origin. Raises `BenchError`."""
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    began = time.monotonic()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as client:
        client.request("GET", f"http://127.0.0.1:{origin.port}/none", headers={"Proxy-Authorization": f"Basic {pair}"})
        response = client.getresponse()
        content = response.read()
    if response.status != http.HTTPStatus.NOT_FOUND:
        raise BenchError(f"a request of {user} at port {port}: {response.status} {content[:200]!r}")
    return time.monotonic() - began


def median_ms(seconds: Sequence[float]) -> float:
    """The median in milliseconds."""
    return statistics.median(seconds) * 1e3
