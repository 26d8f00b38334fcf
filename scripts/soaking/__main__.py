"""`scripts/soak`: see the package. Ends with 1 when a check failed."""

from __future__ import annotations

import argparse
import ctypes
import datetime
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from api.audit.trail import Head, verify
from config.files.paths import DataDir
from soaking import verdict
from soaking.changes import COUNTED, LIST, PLAN, POLICY, USER, Changes, Guarded, Ledger, denying, id_of, stored
from soaking.disturb import Disturber, Plan
from soaking.faults import ASLEEP, CHAINED, SPARE, UPSTREAM, WORKERS, Journal, unexplained
from soaking.installation import Installation
from soaking.traffic import Target, Traffic, moved
from soaking.verdict import Findings
from tests.kit.product import PASSWORD
from tests.kit.wait import wait_until

MOST_REQUESTS, PRINTED = 300, 12
SETTLED_WITHIN = 60.0
BETWEEN_WAKES = 5.0
"""Seconds between clients of the proxy that sleeps."""
GUARDED, POOL = "guarded", "pool"
"""The tag of proxies that ask for credentials, and the pool of upstreams."""
_PR_SET_CHILD_SUBREAPER = 36


def main() -> int:
    """The exit status."""
    arguments = _arguments()
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if arguments.cluster:
        from soaking.cluster.run import main as soak_cluster

        return soak_cluster(arguments)
    product = Installation()
    command = [sys.executable, "-m", "soaking.origin"]
    origin = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert origin.stdout is not None
        http_port, echo_port = map(int, origin.stdout.readline().split())
        product.start()
        soak = Soak(product, arguments, {origin.pid}, http_port, echo_port)
        checks = soak.run()
        checks["it ends in good order"] = [] if product.stop(60) == 0 else ["it did not"]
        found = verify(DataDir(product.data_dir))
        checks["the audit trail is whole"] = [] if isinstance(found, Head) else [f"row {found.seq} {found.error}"]
        return soak.report(checks)
    finally:
        if arguments.keep_log is not None:
            arguments.keep_log.write_text(product.log)
        product.discard()
        origin.kill()
        origin.wait()


class Soak:
    """One run."""

    def __init__(
        self, product: Installation, arguments: argparse.Namespace, own: set[int], http_port: int, echo_port: int
    ) -> None:
        self._product, self._arguments, self._own, self._disk = product, arguments, own, product.disk
        guard = _make_guard(product, http_port)
        self._proxies = _make_proxies(product)
        counted = {"credentials": f"{COUNTED}:{PASSWORD}"}
        more: dict[str, Any] = {WORKERS: counted, ASLEEP: counted | {"pause": BETWEEN_WAKES}}
        targets = [
            Target(name, proxy["protocol"], proxy["port"], **more.get(name, {}))
            for name, proxy in self._proxies.items()
            if name not in (UPSTREAM, SPARE)
        ]
        guarded = Guarded(self._proxies[WORKERS]["port"], guard, f"http://127.0.0.1:{http_port}")
        self._ledger, self._journal = Ledger(), Journal()
        self._traffic = Traffic(targets, http_port, echo_port, arguments.rate / 2.3)
        self._changes = Changes(product, self._ledger, guarded, arguments.seed)
        self._plan = Plan(arguments.minutes * 60)
        names = {f"fwd-{proxy['id'][-8:]}": name for name, proxy in self._proxies.items()}
        self._disturber = Disturber(product, self._journal, names, self._plan, arguments.seed)
        self._wall_offset = time.time() - time.monotonic()

    def run(self) -> Findings:
        """Disturb the product, and check it."""
        product, began = self._product, time.monotonic()
        self._traffic.start()
        self._disturber.start()
        try:
            time.sleep(self._plan.begin - 5)
            before = verdict.sample(product)
            self._changes.start()
            self._disturber.join()
            left = max(0.0, began + self._plan.total - time.monotonic())
            _print(f"faults are over; {left:.0f} s of calm")
            time.sleep(left)
        finally:
            self._disturber.stop()
            self._changes.stop()
            self._traffic.stop()
        self._seconds = time.monotonic() - began
        product.wait_whole(SETTLED_WITHIN)
        found = stored(product)
        lost = [each for collection, things in found.items() for each in self._ledger.lost(collection, things)]
        used = self._miscounted()
        self._stop_new_proxies()
        self._reap()
        return {
            "every answered change is there": lost,
            "every answered change holds for the next request": self._changes.wrong,
            "what an account has used is exact": used,
            "a proxy slept, and was woken": self._sleepless(),
            **verdict.of_traffic(self._traffic.attempts, self._journal),
            **verdict.of_calls(self._changes.calls, self._journal),
            "everything was mended in time": self._disturber.failures,
            "every start of the product succeeded": self._disturber.starts_that_failed,
            # one proxy has two workers, and one sleeps
            "no process is left over": verdict.stray_processes(product, self._own, len(self._proxies)),
            "no file is left over": verdict.stray_files(product),
            "no process spins when nothing happens": verdict.spinning(product),
            "no memory or descriptor leaks": verdict.growths(before, verdict.sample(product)),
            "every line of the log is explained": unexplained(product.lines(), self._journal.faults, self._wall_offset),
        }

    def report(self, checks: Findings) -> int:
        """Print it as Markdown, and what was found on standard error."""
        for what, found in checks.items():
            for each in found[:PRINTED]:
                _print(f"NOT SO: {what}: {each}")
        attempts, calls = self._traffic.attempts, self._changes.calls
        results = [
            f"{self._seconds / 60:.0f} minutes, up to {self._arguments.rate} requests a second, "
            f"{len(self._journal.faults)} faults, seed {self._arguments.seed}, {datetime.date.today()}"
            + ("" if self._disk else "; without a full disk, for which root is needed"),
            *verdict.summary(attempts, calls, self._seconds),
            f"{self._ledger.succeeded} changes acknowledged and compared, {self._ledger.doubtful} in doubt",
        ]
        listed = "\n".join(f"- {each}" for each in results)
        faults = verdict.table_of_faults(self._journal, attempts, calls)
        text = "\n\n".join([listed, faults, verdict.table_of_findings(checks)])
        print(text)
        return int(any(checks.values()))

    def _miscounted(self) -> list[str]:
        """What differs from the bytes of the traffic."""
        bounds = moved(each for each in self._traffic.attempts if each.proxy in (WORKERS, ASLEEP))

        def wrong() -> list[str]:
            account = self._product.data("GET", f"/accounts?q={COUNTED}")["accounts"][0]
            usage = account["usage"] or dict.fromkeys(bounds, 0)
            return [
                f"{name}: {usage[name]}, expected {low} to {high}"
                for name, (low, high) in bounds.items()
                if not low <= usage[name] <= high
            ]

        with suppress(AssertionError):
            wait_until(lambda: not wrong(), "usage is counted", 10)
        return wrong()

    def _sleepless(self) -> list[str]:
        texts = (line["message"] for line in self._product.lines())
        wakes = sum(text.startswith(f"{ASLEEP} (") and " sleeps" in text for text in texts)
        return [] if wakes > self._seconds / BETWEEN_WAKES / 4 else [f"it slept {wakes} times"]

    def _stop_new_proxies(self) -> None:
        """So that the same processes run as at the first sample."""
        for proxy in self._product.proxies("status=active"):
            if proxy["name"] not in self._proxies:
                self._product.data("POST", f"/proxies/{proxy['id']}/stop")
        wanted = len(self._proxies)
        wait_until(lambda: len(self._product.by_kind()["forwarding"]) == wanted, "the others ended", SETTLED_WITHIN)

    def _reap(self) -> None:
        """Orphans of a killed supervisor that have ended; the others are found as left over."""
        for process in psutil.Process().children():
            if process.pid not in self._own and process.pid != self._product.pid:
                with suppress(ChildProcessError):  # psutil has reaped it
                    os.waitpid(process.pid, os.WNOHANG)


def _make_guard(product: Installation, http_port: int) -> str:
    """Plan, accounts, list and policy; the id of the account that `Changes` uses."""
    source = {"url": f"http://127.0.0.1:{http_port}/list", "format": "plain", "interval": 60}
    ids = {}
    for collection, body in (
        ("plans", {"name": PLAN, "quota": {"bytes": 1 << 40, "period": "total"}}),
        ("accounts", {"username": COUNTED, "password": PASSWORD, "plan": PLAN, "proxies": {"tags": [GUARDED]}}),
        ("accounts", {"username": USER, "password": PASSWORD, "plan": PLAN, "proxies": {"tags": [GUARDED]}}),
        ("lists", {"name": LIST, "kind": "domains", "source": source}),
        ("policies", {"name": POLICY, "rules": [denying("list", destinations=[f"list:{LIST}"])]}),
    ):
        ids[collection] = id_of(product.data("POST", f"/{collection}", body))
    wait_until(lambda: product.data("GET", f"/lists/{LIST}")["list"]["status"]["entries"], "the list is fetched")
    return ids["accounts"]


def _make_proxies(product: Installation) -> dict[str, dict[str, Any]]:
    """Those that the traffic goes through, and their upstreams."""
    hook = {"name": "always", "url": "http://127.0.0.1:9/", "events": ["proxy.*"], "enabled": False}
    product.data("POST", "/webhooks", hook)  # the sender loads what it needs for the first one
    made = {name: product.proxy(name=name) for name in (UPSTREAM, SPARE)}
    through = [{"protocol": "http", "host": "127.0.0.1", "port": each["port"]} for each in made.values()]
    product.data("POST", "/pools", {"name": POOL, "upstreams": through, "check": {"interval": 5}})
    tls = {"cert_file": str(product.cert), "key_file": str(product.key)}
    guarded = {"auth": {"enabled": True}, "tags": [GUARDED]}
    for name, more in (
        (CHAINED, {"upstreams": through[:1]}),
        (WORKERS, {**guarded, "workers": 2, "policy": POLICY}),
        (ASLEEP, {**guarded, "sleep_after": 1, "pool": POOL}),
        ("http", {}),
        ("https", {"protocol": "https", "tls": tls}),
        ("socks4", {"protocol": "socks4"}),
        ("socks5", {"protocol": "socks5"}),
    ):
        made[name] = product.proxy(name=name, **more)
    return made


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/soak", description=(__doc__ or "").partition(".")[0])
    parser.add_argument("--cluster", action="store_true", help="three nodes of a fleet, with a PostgreSQL of their own")
    parser.add_argument("--only", nargs="*", default=[], help="with --cluster: these drills, if there are any")
    parser.add_argument("--minutes", type=float, default=20.0, help="how long, from 2 (default: 20)")
    rate = f"requests a second, up to {MOST_REQUESTS} (default: 200)"
    parser.add_argument("--rate", type=int, default=200, help=rate)
    parser.add_argument("--seed", type=int, default=1, help="of everything that is chosen")
    parser.add_argument("--keep-log", type=Path, help="where the product's log is copied to")
    arguments = parser.parse_args()
    if arguments.minutes < 1 or not 1 <= arguments.rate <= MOST_REQUESTS:
        parser.error(f"--minutes is at least 2, and --rate is from 1 to {MOST_REQUESTS}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
