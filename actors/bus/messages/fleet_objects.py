"""Objects that any number of proxies name, as the supervisor and forwarding actors need them.

Objects name each other by their names, which are unique within a kind. `revision` is the store's: the greater one wins.
"""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message
from actors.bus.messages.upstreams import UpstreamsSpec

DOMAINS = "domains"
"""The kind of a list whose entries match names."""
PLANS = "plans"
"""The key of what plans of accounts name."""
POOL_KEY = "pool:"
"""Begins the keys of pools."""
ALL_LISTS = "list:*"
"""The key of all lists: those that accounts, credentials and plans may name at any time."""


@message
class ListRef:
    """A list of destinations, without its entries. A value, not a message by itself.

    `kind` is `domains`, `networks` or `geo`. `file` is the name of the compiled file in the folder of lists of the data
    directory; empty: there is none yet, and the list matches nothing. Another content has another name.
    """

    id: str
    name: str
    revision: int
    kind: str
    file: str = ""

    @property
    def judges_addresses(self) -> bool:
        """Whether its entries match addresses, not names."""
        return self.kind != DOMAINS


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
class FleetObject:
    """A list, pool or policy on its way to the processes that need it. A value, not a message by itself.

    `key` is its kind and its name, `pool:paris`; `names` are the keys of the objects that it names. `packed` is its
    `ListRef`, `PoolSpec` or `PolicySpec` (`actors.bus.codec.pack`), which may have secrets. Without it the object only
    stands for what it names: that with the key `plans` for what plans of accounts name.
    """

    key: str
    id: str
    revision: int
    names: tuple[str, ...]
    packed: bytes = field(repr=False)
