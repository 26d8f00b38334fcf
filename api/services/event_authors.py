"""Which events name who caused them, and what changed."""

from __future__ import annotations

from api.objects.named_kinds import NAMED

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
