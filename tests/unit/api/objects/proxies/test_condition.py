"""Which actors of the product have a problem: one that serves without another names it only when it has failed."""

from __future__ import annotations

from dataclasses import replace

from actors.bus.messages.common import POOLS, PROCESS, PROXY_RESOLVER, RESOLVER, UPSTREAM_DOWN, Problem
from actors.bus.messages.supervision import Runtime, RuntimeReport
from api.objects.proxies.condition import ALWAYS, Flaw, of_actors
from tests.kit.tables import table


def runtime(state: str, error: str | None = None) -> Runtime:
    return Runtime(state, 1, 100.0, 2, error)


def flaws(**optional: Runtime) -> list[Flaw]:
    running = {name: runtime("running") for name in ALWAYS}
    return of_actors(RuntimeReport({}, {**running, **optional}, 1.0))


@table("actor", [RESOLVER, PROXY_RESOLVER, POOLS])
@table("state", ["running", "starting", "draining", "stopped"])
def test_an_actor_that_runs_or_is_started_again_and_is_not_needed_is_no_problem(state: str, actor: str) -> None:
    assert flaws(**{actor: runtime(state)}) == []


def test_an_upstream_of_a_pool_that_is_down_is_a_problem_of_the_checks() -> None:
    down = Problem(UPSTREAM_DOWN, "the upstream exit1 of the pool paris is down: refused", 100.0, "paris/exit1")
    (found,) = flaws(**{POOLS: replace(runtime("degraded"), problems=(down,))})
    assert (found.resource, found.id, found.view()["upstream"]) == ("actor", POOLS, "paris/exit1")


def test_without_a_resolver_names_are_resolved_by_the_system() -> None:
    assert flaws() == []


def test_a_resolver_that_can_not_be_started_is_a_problem_through_which_the_product_serves() -> None:
    (found,) = flaws(**{RESOLVER: runtime("failed", "its socket can't be made")})
    assert (found.resource, found.id, found.problem.reason) == ("actor", RESOLVER, PROCESS)
    assert found.view()["error"] == "its socket can't be made"
