"""Objects that any number of proxies name, as the supervisor and forwarding actors need them.

Objects name each other by their names, which are unique within a kind. `revision` is the store's: the greater one wins.
"""

from __future__ import annotations

from actors.bus.codec import message
from actors.bus.messages.policies import PolicySpec
from actors.bus.messages.upstreams import UpstreamsSpec


@message
class ListRef:
    """A list of destinations, without its entries. A value, not a message by itself.

    `kind` is `domains` or `networks`. `file` is the name of the compiled file in the folder of lists of the data
    directory; empty: there is none yet, and the list matches nothing. Another content has another name.
    """

    id: str
    name: str
    revision: int
    kind: str
    file: str = ""


@message
class PoolSpec:
    """A pool of upstreams. A value, not a message by itself.

    A request is tried `attempts` times in all: again after a failure to connect (`retry_connect`), and when the
    upstream responds with one of `retry_statuses`. `cooldown` has by kind of failure (`connect`, `407`, `429`, `5xx`)
    the seconds from and to that an upstream is left alone; 0 and 0 for not at all.
    Without entries there is no upstream, so that nothing can be reached through the pool.
    """

    id: str
    name: str
    revision: int
    upstreams: UpstreamsSpec = UpstreamsSpec()
    attempts: int = 5
    retry_connect: bool = True
    retry_statuses: tuple[int, ...] = ()
    cooldown: tuple[tuple[str, float, float], ...] = ()


@message
class FleetObjects:
    """A consistent set of objects: whatever one of them names is in it. A value, not a message by itself."""

    lists: tuple[ListRef, ...] = ()
    pools: tuple[PoolSpec, ...] = ()
    policies: tuple[PolicySpec, ...] = ()
