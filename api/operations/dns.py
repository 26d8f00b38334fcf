"""The cache of the resolver."""

from __future__ import annotations

from api.openapi.schemas.dns import CachedNames, DroppedNames
from api.operations.operation import V1, delete, get, resource
from api.resources import dns

TABLE = resource(f"{V1}/dns/cache", read="settings.read", write="proxy.write")(
    get("", "listCachedNames", dns.show_cache, CachedNames, query=dns.CacheQuery),
    delete("", "dropCachedNames", dns.flush_cache, DroppedNames, query=dns.FlushQuery, audit="dns.cache_dropped"),
)
