"""The present problems of the product in one list: of proxies, of other actors, of webhooks.

A proxy is degraded while it runs with problems, and failed while it should run and doesn't. A webhook fails while its
last request has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from actors.bus.messages.common import LOGS, METRICS, POOLS, PROCESS, PROXY_RESOLVER, RESOLVER, TLS, WEBHOOKS, Problem
from actors.bus.messages.events import WebhookStatus
from actors.bus.messages.supervision import Runtime, RuntimeReport
from api.objects.proxies.proxy_cache import StoredProxy
from config.model.webhooks import WebhookRecord
from config.text.formatting import timestamp_text

ALWAYS = (METRICS, LOGS, WEBHOOKS)
"""The actors that run beside proxies and API whatever is configured."""
OPTIONAL = (RESOLVER, PROXY_RESOLVER, POOLS)
"""The actors without which the product serves; that one does not run yet is no problem."""
WEBHOOK_FAILING = "webhook_failing"


class Flaw(NamedTuple):
    """A problem of a resource. `resource` is `proxy`, `actor` or `webhook`; `port` is that of a proxy."""

    resource: str
    id: str
    name: str
    port: int | None
    problem: Problem

    def view(self) -> dict[str, Any]:
        """Its view in the API."""
        about = {"resource": self.resource, "id": self.id, "name": self.name, "port": self.port}
        return {**about, **problem_view(self.problem)}


def problem_view(problem: Problem) -> dict[str, Any]:
    """The view of a problem; `upstream` is the name of the upstream that it concerns."""
    return {
        "reason": problem.reason,
        "upstream": problem.subject or None,
        "error": problem.detail,
        "since": timestamp_text(problem.since),
    }


def of_proxies(fleet: RuntimeReport, proxies: Iterable[StoredProxy]) -> list[Flaw]:
    """The problems of the proxies that should run."""
    return [
        Flaw("proxy", each.record.id, each.record.name, each.record.port, problem)
        for each in proxies
        if each.record.status == "active" and (runtime := fleet.proxies.get(each.record.id)) is not None
        for problem in _problems_of(runtime)
    ]


def of_actors(fleet: RuntimeReport) -> list[Flaw]:
    """The problems of the actors beside the proxies; one that does not run at all has one."""
    found = []
    for name in (*ALWAYS, *({TLS} & fleet.actors.keys()), *_optional_with_problems(fleet)):
        runtime = fleet.actors.get(name)
        problems = _problems_of(runtime) if runtime is not None and runtime.runs else (_absent(runtime),)
        found += [Flaw("actor", name, name, None, problem) for problem in problems]
    return found


def _optional_with_problems(fleet: RuntimeReport) -> Iterator[str]:
    for name in OPTIONAL:
        runtime = fleet.actors.get(name)
        if runtime is not None and _problems_of(runtime):
            yield name


def of_webhooks(webhooks: Sequence[WebhookRecord], statuses: dict[str, WebhookStatus]) -> list[Flaw]:
    """The problems of enabled webhooks whose last request failed, unless they were changed since."""
    return [
        Flaw("webhook", each.id, each.name, None, Problem(WEBHOOK_FAILING, status.last_error or "", failed_at))
        for each in webhooks
        if each.enabled and (status := statuses.get(each.id)) is not None
        if (failed_at := status.last_failure_at) is not None
        if failed_at > max(status.last_success_at or 0.0, each.updated_at)
    ]


def _problems_of(runtime: Runtime) -> tuple[Problem, ...]:
    return runtime.problems or ((_absent(runtime),) if runtime.state == "failed" else ())


def _absent(runtime: Runtime | None) -> Problem:
    """The problem of an actor that does not run."""
    if runtime is None:
        return Problem(PROCESS, "does not run", 0.0, serves=False)
    return Problem(PROCESS, runtime.error or f"does not run: {runtime.state}", runtime.since, serves=False)
