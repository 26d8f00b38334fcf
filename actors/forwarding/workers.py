"""How a process comes to count together with the other workers of its proxy."""

from __future__ import annotations

from pathlib import Path

from actors.bus.messages.common import WORKERS
from actors.forwarding.context import ForwardingContext
from actors.forwarding.limits.elsewhere import join_workers


def join(context: ForwardingContext, folder: Path, proxy_id: str, column: int) -> None:
    """Count in this column from now on. Where that can't be, limits hold for this worker alone, which is a problem."""

    def failed(detail: str) -> None:
        context.problems.begins(WORKERS, f"limits hold for a worker alone: {detail}")

    elsewhere = join_workers(context.loop, folder, proxy_id, column, failed)
    if elsewhere is None:
        return
    context.limits.share(elsewhere, len(context.connections))
    context.authenticator.share(elsewhere)
    context.sources.share(elsewhere)
    context.upstream_sets.share(elsewhere)

    def on_processes(count: int) -> None:
        context.pool.divide_among(count)
        context.limits.usage.workers = count

    elsewhere.on_processes = on_processes
    elsewhere.open_connections()
