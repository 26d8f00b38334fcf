"""Policies: the time of one decision by 10 rules and by 1,000, compiled, with what it takes to ask about a request.

Three kinds of rules: by destination, by account and tag, and with everything at once (paths, networks, clients,
methods, schedules). The requests are spread over the rules, and a share of them matches none.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import partial

from actors.bus.messages.policies import PolicySpec, RuleSpec
from actors.forwarding.access.rules import NO_LISTS
from actors.forwarding.policies.compiled import CompiledPolicy
from actors.forwarding.policies.facts import Facts
from actors.forwarding.policies.judge import Judge
from benchmarks.report import Bar, Row

SIZES = (10, 1_000)
ROUNDS = 5
MOST = 20.0
"""Microseconds for a decision by 1,000 rules."""
WORKING_HOURS = ("Europe/Berlin", (((0, 1, 2, 3, 4), 480, 1080),))


def by_destination(number: int) -> RuleSpec:
    """One rule about a domain and a network."""
    entries = (f"*.host{number}.example", f"host{number}.example:443", f"10.{number >> 8}.{number & 255}.0/24")
    return RuleSpec(f"rule {number}", destinations=entries, use="deny")


def by_account(number: int) -> RuleSpec:
    """One rule about a user and a tag."""
    return RuleSpec(f"rule {number}", accounts=(f"user{number}", f"tag:tag{number}"), use="direct")


def by_everything(number: int) -> RuleSpec:
    """One rule with all conditions."""
    return RuleSpec(
        f"rule {number}",
        accounts=(f"tag:tag{number % 20}",),
        destinations=("*.example", f"10.{number >> 8}.{number & 255}.0/24"),
        methods=("GET", "POST"),
        paths=(f"/path{number}/*", f"/{number}/*/x"),
        clients=(f"192.0.{number % 200}.0/24", "198.51.100.0/24"),
        schedule=WORKING_HOURS if number % 2 else None,
        use="deny" if number % 3 else "direct",
    )


def facts(chance: random.Random, size: int, method: str) -> Facts:
    """A request that one of `size` rules, or none, may be about."""
    number = chance.randrange(size * 5 // 4)
    return Facts(
        host=f"www.host{number}.example",
        port=443,
        literal=False,
        client_ip=f"192.0.{number % 200}.7",
        now=1_790_000_000.0,
        user=f"user{number}",
        tags=(f"tag{number % 20}", "other"),
        method=method,
        path=f"/path{number}/index.html?q=1",
    )


def measure(decisions: int) -> list[Row]:
    """The rows; each figure is the best of `ROUNDS`."""
    kinds: tuple[tuple[str, Callable[[int], RuleSpec]], ...] = (
        ("by destination", by_destination),
        ("by account", by_account),
        ("with all conditions", by_everything),
    )
    return [
        Row(f"decision, {size:,} rules {kind}", "us", _time(rule, size, decisions), bar=Bar(MOST))
        for kind, rule in kinds
        for size in SIZES
    ]


def _time(rule: Callable[[int], RuleSpec], size: int, decisions: int) -> float:
    """Microseconds from the facts of a request to the verdict, that at an address included."""
    policy = CompiledPolicy(PolicySpec("policy_bench", "bench", tuple(map(rule, range(size)))), NO_LISTS)
    chance = random.Random(size)
    requests = [facts(chance, size, "GET") for _ in range(min(decisions, 1_000))]
    once = partial(_decide, policy, requests, max(1, decisions // len(requests)))
    return min(once() for _ in range(ROUNDS))


def _decide(policy: CompiledPolicy, requests: list[Facts], times: int) -> float:
    began = time.process_time()
    for _ in range(times):
        for each in requests:
            fresh = Facts(each.host, 443, False, each.client_ip, each.now, each.user, each.tags, each.method, each.path)
            judge = Judge((policy,), fresh)
            if judge.by_name() is None:
                judge.by_address("10.3.231.9")
    return (time.process_time() - began) / times / len(requests) * 1e6
