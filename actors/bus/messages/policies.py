"""Policies, as the forwarding actors get them. Values, no messages by themselves."""

from __future__ import annotations

from typing import Final

from actors.bus.codec import message
from actors.bus.messages.specs import LimitsSpec

DENY: Final = "deny"
DIRECT: Final = "direct"
POOL = "pool:"
"""Begins the `use` of a rule that names a pool."""


@message
class RuleSpec:
    """One rule of a policy. A value, not a message by itself.

    Conditions that are empty hold for every request; a rule matches when all hold. `accounts` are user names, or tags
    behind `tag:`; `destinations` entries as `config.net.entries` reads them; the method `*` is any; `paths` patterns
    with `*`; `tunnel`: it is not plain HTTP; `params` names and values; `schedule` is `actors.accounts.schedule`'s;
    `listen_ports` the first and the last of consecutive ports of the proxy. `report`: it is counted and not enforced.
    `use` is `deny`, `direct`, `pool:` and a name, or empty: the request goes the way it would go without the rule.
    `egress` are addresses and networks that connections leave from. `tls_name` is as in `ProxySpec`, or empty: the
    proxy's holds.
    """

    name: str = ""
    accounts: tuple[str, ...] = ()
    destinations: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    params: tuple[tuple[str, str], ...] = ()
    schedule: tuple[str, tuple[tuple[tuple[int, ...], int, int], ...]] | None = None
    clients: tuple[str, ...] = ()
    report: bool = False
    use: str = ""
    reason: str = ""
    egress: tuple[str, ...] = ()
    set_headers: tuple[tuple[str, str], ...] = ()
    remove_headers: tuple[str, ...] = ()
    limits: LimitsSpec = LimitsSpec()
    listen_ports: tuple[tuple[int, int], ...] = ()
    tunnel: bool = False
    tls_name: str = ""


@message
class PolicySpec:
    """A policy: the first rule that matches decides. A value, not a message by itself.

    `revision` is the store's. A process that knew a smaller `ended` ends the tunnels that are no longer allowed.
    """

    id: str
    name: str
    rules: tuple[RuleSpec, ...] = ()
    revision: int = 0
    ended: int = 0
