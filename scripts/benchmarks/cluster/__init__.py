"""The benchmark of several nodes, on one machine with a PostgreSQL of their own: `scripts/bench cluster`.

Nodes are real products, each at an address of its own, unless a row says that they are simulated. They share the cores
with the database and the clients. The files of nodes are in memory where that is possible, those of the database on the
disk, with `fsync=on`.
"""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.cluster import changes, costs, joining, searching, simulated, usage
from benchmarks.rounds import Bench, Results

MEASURES: dict[str, Callable[[Bench], Results]] = {
    "cluster-served": changes.served,
    "cluster-changes": changes.rates,
    "cluster-mint": changes.minting,
    "cluster-reads": costs.reads,
    "cluster-idle": costs.idle,
    "cluster-forward": costs.forwarding,
    "cluster-init": joining.init,
    "cluster-join": joining.join,
    "cluster-away": joining.away,
    "cluster-quota": usage.quota,
    "cluster-outage": usage.outage,
    "cluster-search": searching.search,
    "cluster-followers": simulated.followers,
    "cluster-reports": simulated.reports,
}
"""By name, which all begin with `cluster`."""
