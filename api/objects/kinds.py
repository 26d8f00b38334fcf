"""The table of kinds. A new one is a module beside this one and a row here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from api.engine.kind import Kind, ObjectKind
from api.objects.accounts import ACCOUNTS
from api.objects.named_kinds import NAMED
from api.objects.plans.kind import PLANS
from api.objects.proxies import PROXIES
from api.objects.users import USERS
from api.objects.webhooks.kind import WEBHOOKS

_TABLE: tuple[Kind[Any], ...] = (PROXIES, USERS, WEBHOOKS, PLANS, *NAMED.values(), ACCOUNTS)
KINDS: Mapping[str, Kind[Any]] = {each.collection: each for each in _TABLE}
"""By collection, in the order in which documents of the configuration have them."""
OBJECT_KINDS: Mapping[str, ObjectKind[Any]] = {
    name: each for name, each in KINDS.items() if isinstance(each, ObjectKind)
}
"""Those whose operations the engine has."""
REVISED = (*(each.name for each in KINDS.values()), "api_key", "settings")
"""What the objects are called whose changes are revisions."""
