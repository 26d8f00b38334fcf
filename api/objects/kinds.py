"""The table of kinds, and which of their events name who caused them and what changed. A new one is a module in a
package beside this one and a row here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.engine.kind import Kind, ObjectKind
from api.objects.accounts.account_kind import ACCOUNTS
from api.objects.accounts.plan_kind import PLANS
from api.objects.named.list_kind import LISTS
from api.objects.named.named_kind import NamedKind
from api.objects.named.policy_kind import POLICIES
from api.objects.named.pool_kind import POOLS
from api.objects.nodes.node_kind import NODES
from api.objects.proxies.proxy_kind import PROXIES
from api.objects.users.user_kind import USERS
from api.objects.webhooks.webhook_kind import WEBHOOKS

NAMED: Mapping[str, NamedKind[Any]] = {each.collection: each for each in (LISTS, POOLS, POLICIES)}
"""By collection; those before may be named by those behind them."""


_TABLE: tuple[Kind[Any], ...] = (PROXIES, USERS, WEBHOOKS, PLANS, *NAMED.values(), ACCOUNTS)
KINDS: Mapping[str, Kind[Any]] = {each.collection: each for each in _TABLE}
"""By collection, in the order in which documents of the configuration have them. Nodes are in none: they are of the
installation, so no export has them, and an import, a restored state or a backup leaves them as they are."""
OBJECT_KINDS: Mapping[str, ObjectKind[Any]] = {
    name: each for name, each in KINDS.items() if isinstance(each, ObjectKind)
}
"""Those whose operations the engine has."""
REVISED = (*(each.name for each in KINDS.values()), "api_key", "settings", NODES.name)
"""What the objects are called whose changes are revisions."""
AUTHORED = (
    *("proxy.", "user.", "api_key.", "settings.", "account.", "credential.", "config.", "upstream."),
    *(f"{kind.name}." for kind in NAMED.values()),
)
"""Groups of events whose data name who caused them."""
CHANGES = {
    "proxy.updated": "proxy_id",
    "user.updated": "user_id",
    "account.updated": "account_id",
    **{f"{kind.name}.updated": f"{kind.name}_id" for kind in NAMED.values()},
}
"""Events whose data name the changed fields, with the field that has the id of the changed resource."""
