"""`scripts/soak --cluster`: one run."""

from __future__ import annotations

import argparse
import datetime
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from soaking import verdict
from soaking.changes import COUNTED, LIST, PLAN, POLICY, PREFIX, USER, Guarded, denying, id_of, stored
from soaking.cluster import verdict as of_fleet
from soaking.cluster.changes import SIGNER, Confirmed, FleetChanges, FleetLedger, SignIns
from soaking.cluster.drills import OF_DATABASE, Drills
from soaking.cluster.faults import CLOCK_OFF, LINES, FleetJournal, unexplained_calls
from soaking.cluster.fleet import HOSTS, SoakedFleet
from soaking.disturb import Plan
from soaking.faults import CUT, LATE, unexplained
from soaking.traffic import Attempt, Target, Traffic, moved
from soaking.verdict import Findings
from tests.kit.ports import free_port
from tests.kit.product import PASSWORD
from tests.kit.wait import wait_until
from tests.kit.webhook_targets import Target as Hook

SETTLED_WITHIN = 90.0
PRINTED = 40
GUARDED = "guarded"
MIB = 1 << 20
QUOTA = 6 * MIB
"""Of each account that is used up in its turn."""
TURN = 40.0
WITHOUT_DATABASE = {*OF_DATABASE, "node cut off", "node cut off one way"}
"""Drills in which an account may use a share of what was left."""
BEYOND = 3 * MIB + 3 * MIB
"""What nodes may use beyond a quota: each a mebibyte, and what was under way."""


def main(arguments: argparse.Namespace) -> int:
    """The exit status."""
    command = [sys.executable, "-m", "soaking.origin"]
    with ExitStack() as stack:
        origin = stack.enter_context(
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        fleet = stack.enter_context(SoakedFleet())
        try:
            assert origin.stdout is not None
            http_port, echo_port = map(int, origin.stdout.readline().split())
            fleet.begin()
            soak = FleetSoak(fleet, stack, arguments, http_port, echo_port)
            return soak.report(soak.run())
        finally:
            if arguments.keep_log is not None:
                for each in fleet.nodes:
                    Path(f"{arguments.keep_log}.{each.name}").write_text(each.log)
            origin.kill()


class FleetSoak:
    """One run."""

    def __init__(
        self, fleet: SoakedFleet, stack: ExitStack, arguments: argparse.Namespace, http_port: int, echo_port: int
    ) -> None:
        self._fleet, self._arguments = fleet, arguments
        first = fleet.nodes[0]
        self._quotas = [f"quota-{number}" for number in range(int(arguments.minutes * 60 / TURN) + 1)]
        account = self._make_accounts(http_port)
        ports = self._make_proxies()
        targets = []
        for node in fleet.nodes:
            for name, (protocol, port) in ports.items():
                more: dict[str, Any] = {}
                if name == "counted":
                    more = {"credentials": f"{COUNTED}:{PASSWORD}"}
                elif name == "quota":
                    logins = tuple(f"{each}:{PASSWORD}" for each in self._quotas)
                    more = {"in_turn": logins, "turn": TURN, "may_end": (b" 429 ", b"rule=quota_unavailable")}
                targets.append(Target(f"{node.name}/{name}", protocol, port, host=HOSTS[node.name], **more))
        self._traffic = Traffic(targets, http_port, echo_port, arguments.rate / 2.3)
        self._ledger, self._journal = FleetLedger(), FleetJournal()
        self._plan = Plan(arguments.minutes * 60)
        self._changes = []
        for number, node in enumerate(fleet.full):
            guarded = Guarded(ports["counted"][1], account, f"http://127.0.0.1:{http_port}", HOSTS[node.name])
            order = [node, *(each for each in fleet.full if each is not node)]
            seed = arguments.seed * 10 + number
            made = FleetChanges(order, self._ledger, guarded, seed, node.name, number == 0, first.token)
            self._changes.append(made)
        signer = {"username": SIGNER, "email": f"{SIGNER}@example.com", "password": PASSWORD, "role": "user"}
        first.data("POST", "/users", signer)
        self._sign_ins = SignIns(fleet.full, self._is_calm)
        self._undone: list[tuple[float, float]] = []
        self._drills = Drills(fleet, self._journal, self._plan, arguments.seed, arguments.only, self._rewound)
        self._target = stack.enter_context(Hook())
        hook = {"name": "events", "url": self._target.url, "events": ["proxy.*"]}
        first.data("POST", "/webhooks", hook)
        self._wall_offset = time.time() - time.monotonic()
        self._log_from = {each.name: len(each.log.splitlines()) for each in fleet.nodes}

    def run(self) -> Findings:
        """Disturb the fleet, and check it."""
        fleet, began = self._fleet, time.monotonic()
        self._traffic.start()
        self._drills.start()
        try:
            time.sleep(self._plan.begin - 5)
            before = of_fleet.samples(fleet)
            for each in self._changes:
                each.start()
            self._sign_ins.start()
            self._drills.join()
            left = max(10.0, began + self._plan.total - time.monotonic())
            _print(f"the drills are over; {left:.0f} s of calm")
            time.sleep(left)
        finally:
            self._drills.stop()
            self._sign_ins.stop()
            for each in self._changes:
                each.stop()
            self._traffic.stop()
        self._seconds = time.monotonic() - began
        settled: list[str] = []
        try:
            wait_until(self._is_settled, "all is settled", SETTLED_WITHIN, 0.5)
        except AssertionError as error:
            settled.append(str(error))
        for each in fleet.nodes:
            each.forget_token()
        found = stored(fleet.nodes[0])
        self._stop_new_proxies()
        calls = [each for changes in self._changes for each in changes.calls] + self._sign_ins.calls
        confirmed = [each for changes in self._changes for each in changes.confirmed]
        self._calls = calls
        return {
            "all nodes settle": settled,
            "every confirmed change is there": [
                each for where in found for each in self._ledger.lost(where, found[where])
            ],
            "what a restore has undone is named": self._unnamed(found),
            "every confirmed change holds for the next request": [
                each for changes in self._changes for each in changes.wrong
            ],
            "a sign-in at one node is good at the other": self._sign_ins.wrong,
            "what an account has used is exact": self._miscounted(),
            "no quota is exceeded by more than its bound": self._beyond(),
            **verdict.of_traffic(self._attempts(), self._journal),
            "no call of the API failed but as the drills allow": unexplained_calls(calls, self._journal),
            "everything was mended in time": self._drills.failures,
            **of_fleet.of_fleet(fleet, confirmed, self._undone),
            "no event is lost": self._lost_events(confirmed),
            "no file is left over": [
                f"{node.name}: {each}" for node in fleet.full for each in verdict.stray_files(node)
            ],
            "no process spins when nothing happens": [
                f"{node.name}: {each}" for node in fleet.nodes for each in verdict.spinning(node)
            ],
            "no memory or descriptor leaks": of_fleet.leaks(before, of_fleet.samples(fleet)),
            "every line of the log is explained": self._unexplained(),
        }

    def report(self, checks: Findings) -> int:
        """Print it as Markdown, and what was found on standard error."""
        for what, found in checks.items():
            for each in found[:PRINTED]:
                _print(f"NOT SO: {what}: {each}")
        failed = [(each.begin, each.end) for each in self._calls if each.status not in (200, 201)]
        results = [
            f"{self._seconds / 60:.0f} minutes, up to {self._arguments.rate} requests a second, "
            f"{len(self._journal.faults)} drills, seed {self._arguments.seed}, {datetime.date.today()}",
            *verdict.summary(self._traffic.attempts, self._calls, self._seconds),
            f"{self._ledger.succeeded} changes confirmed and compared, {self._ledger.doubtful} in doubt",
            f"{self._sign_ins.count} sign-ins at one node that were used at the other",
        ]
        listed = "\n".join(f"- {each}" for each in results)
        print("\n\n".join([listed, of_fleet.table_of_drills(self._journal, failed), verdict.table_of_findings(checks)]))
        return int(any(checks.values()))

    def _stop_new_proxies(self) -> None:
        """So that the same processes run as at the first sample."""
        first = self._fleet.nodes[0]
        for proxy in first.proxies("status=active"):
            if proxy["name"].startswith(PREFIX):
                first.data("POST", f"/proxies/{proxy['id']}/stop")

    def _rewound(self, since: float) -> None:
        """The database lacks what was changed since then; called when it has happened, and some seconds later."""
        self._ledger.rewind(since)
        self._undone.append((since, time.monotonic()))
        for each in self._changes:
            each.forget_revision()

    def _is_calm(self, begin: float, end: float) -> bool:
        return not any(each.begin <= end and begin <= (each.end or end) + 5 for each in self._journal.faults)

    def _is_settled(self) -> bool:
        return self._fleet.is_whole() and not any(
            count for each in self._fleet.known() for count in each["pending"].values()
        )

    def _unexplained(self) -> list[str]:
        return [
            f"{node.name}: {each}"
            for node in self._fleet.nodes
            for each in unexplained(
                node.lines()[self._log_from[node.name] :], self._journal.faults, self._wall_offset, LINES, CLOCK_OFF
            )
        ]

    def _attempts(self) -> list[Attempt]:
        """Those that say something about the product.

        At its quota an account's connections are ended: `_beyond` has what it used. Without the database they are,
        too, at the node's share of what was left.
        """
        stalls = self._traffic.stalls
        _print(f"the clients had no processor {len(stalls)} times, {sum(end - begin for begin, end in stalls):.0f} s")

        def is_stalled(each: Attempt) -> bool:
            timed = each.result in (CUT, LATE) and each.end - each.begin > 5
            return timed and any(begin <= each.end and each.begin <= end for begin, end in stalls)

        def is_at_quota(each: Attempt) -> bool:
            if each.result != CUT or not each.proxy.endswith("/quota"):
                return False
            if not WITHOUT_DATABASE.isdisjoint(self._journal.around(each.begin, each.end)):
                return True
            return used[self._quotas[int(each.begin / TURN) % len(self._quotas)]] >= QUOTA

        used = self._used_of_quotas()
        return [each for each in self._traffic.attempts if not is_stalled(each) and not is_at_quota(each)]

    def _unnamed(self, found: dict[str, dict[str, Any]]) -> list[str]:
        lost = [each for node in self._fleet.nodes for report in node.lost() for each in report["documents"]]
        named = {each[key] for each in lost for key in ("id", "name")}

        def is_named(collection: str, name: str) -> bool:
            return bool({name, *(each.id_of(collection, name) for each in self._changes)} & named)

        return [text for each in found for text in self._ledger.unnamed(each, found[each], is_named)]

    def _lost_events(self, confirmed: list[Confirmed]) -> list[str]:
        """Of proxies that were created or deleted, also of those whose change a restore has undone."""
        wanted = {(each.event, each.id) for each in confirmed if each.collection == "proxies" and each.event}

        def missing() -> set[tuple[str, str]]:
            contents = [each.content for each in self._target.received]
            return wanted - {(each["type"], each["data"].get("proxy_id", "")) for each in contents}

        with suppress(AssertionError):
            wait_until(lambda: not missing(), "all events have come", 60, 0.5)
        _print(f"{len(self._target.received)} deliveries of events, {len(wanted)} are compared")
        return [" ".join(each) for each in sorted(missing())]

    # --- usage ---

    def _usage(self, name: str) -> dict[str, Any]:
        account = self._fleet.nodes[0].data("GET", f"/accounts?q={name}&limit=1000")["accounts"]
        found = next(each for each in account if each["username"] == name)
        return found["usage"] or {"bytes": 0, "bytes_in": 0, "bytes_out": 0}

    def _miscounted(self) -> list[str]:
        """What differs from the bytes of the traffic."""
        bounds = moved(each for each in self._traffic.attempts if each.proxy.endswith("/counted"))

        def wrong() -> list[str]:
            usage = self._usage(COUNTED)
            return [
                f"{name}: {usage[name]}, expected {low} to {high}"
                for name, (low, high) in bounds.items()
                if not low <= usage[name] <= high
            ]

        with suppress(AssertionError):
            wait_until(lambda: not wrong(), "usage is counted", 30)
        return wrong()

    def _used_of_quotas(self) -> dict[str, int]:
        return {name: self._usage(name)["bytes"] for name in self._quotas}

    def _beyond(self) -> list[str]:
        used = self._used_of_quotas()
        _print(f"quotas of {QUOTA}: used {sorted(used.values())}")
        return [f"{name}: {count} of {QUOTA}" for name, count in used.items() if count > QUOTA + BEYOND]

    # --- what there is ---

    def _make_accounts(self, http_port: int) -> str:
        first = self._fleet.nodes[0]
        source = {"url": f"http://127.0.0.1:{http_port}/list", "format": "plain", "interval": 60}
        guarded = {"password": PASSWORD, "plan": PLAN, "proxies": {"tags": [GUARDED]}}
        first.data("POST", "/plans", {"name": PLAN, "quota": {"bytes": 1 << 40, "period": "total"}})
        first.data("POST", "/accounts", {**guarded, "username": COUNTED})
        made = id_of(first.data("POST", "/accounts", {**guarded, "username": USER}))
        for name in self._quotas:
            quota = {"bytes": QUOTA, "period": "total"}
            first.data("POST", "/accounts", {**guarded, "username": name, "plan": None, "quota": quota})
        first.data("POST", "/lists", {"name": LIST, "kind": "domains", "source": source})
        rules = [denying("list", destinations=[f"list:{LIST}"])]
        first.data("POST", "/policies", {"name": POLICY, "rules": rules})
        wait_until(lambda: first.data("GET", f"/lists/{LIST}")["list"]["status"]["entries"], "the list is fetched")
        return made

    def _make_proxies(self) -> dict[str, tuple[str, int]]:
        """Protocol and port by name; each runs on all nodes."""
        first = self._fleet.nodes[0]
        guarded = {"auth": {"enabled": True}, "tags": [GUARDED]}
        found = {}
        for name, protocol, more in (
            ("http", "http", {}),
            ("socks5", "socks5", {}),
            ("counted", "http", {**guarded, "workers": 2, "policy": POLICY}),
            ("quota", "http", guarded),
        ):
            port = free_port()
            body = {"name": name, "port": port, "protocol": protocol, "host": "{address:public}", **more}
            made = first.data("POST", "/proxies", body)["proxy"]["id"]
            wait_until(lambda made=made: self._runs(made), f"{name} runs")  # type: ignore[misc]
            found[name] = protocol, port
        return found

    def _runs(self, proxy: str) -> bool:
        nodes = self._fleet.nodes[0].data("GET", f"/proxies/{proxy}")["proxy"]["runtime"]["nodes"]
        return len(nodes) == len(HOSTS) and all(each["state"] == "running" for each in nodes)


def _print(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
