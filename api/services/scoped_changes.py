"""What a key with a scope may set of its proxies: nothing that others share, unless its scope names that.

Pools have credentials of their own, policies are attached by others, tags decide which accounts a proxy has, files and
source addresses belong to the machine. Such fields stay as they are or become what the scope names.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.errors import Denied
from api.security.api_keys import Scope
from config.model.object_names import Named, names_of_proxy
from config.model.proxies import ProxyRecord, ProxyTls, ProxyUpdate

_FILES = ("cert_file", "key_file", "client_ca", "client_crl")
_OF_ALL = ("tags", "bind_address")


def refuse_beyond(scope: Scope, before: ProxyRecord, after: ProxyRecord, body: ProxyUpdate) -> None:
    """Raise `Denied` when a change reaches beyond the scope; `after` need not have the upstreams of `body` yet."""
    for name in ("policy", "pool"):
        _refuse_single(scope, name, getattr(before, name), getattr(after, name))
    _refuse_lists(scope, before, after)
    for field in _others(before, after, body):
        raise Denied(f"{field}: a key with a scope can't change it, since it is not the proxy's alone")


def _refuse_single(scope: Scope, field: str, before: str | None, after: str | None) -> None:
    collection = {"policy": "policies", "pool": "pools"}[field]
    if after != before and after not in (scope.named(collection) or ()):
        given = f"the {field} {after!r} is not in the key's scope" if after else f"the proxy keeps its {field}"
        raise Denied(f"{field}: {given}; it may stay, or be one of scope.{collection}")


def _refuse_lists(scope: Scope, before: ProxyRecord, after: ProxyRecord) -> None:
    """Lists that the scope doesn't name are neither added nor taken away."""
    known, given = _foreign_lists(scope, before), _foreign_lists(scope, after)
    for field, name in sorted(known ^ given):
        what = "is not in the key's scope" if (field, name) in given else "stays: it is not in the key's scope"
        raise Denied(f"{field}: the list {name!r} {what} (scope.lists)")


def _foreign_lists(scope: Scope, record: ProxyRecord) -> set[tuple[str, str]]:
    """Field and name of each list in the rules of a proxy that the scope doesn't name."""
    lists = (each for each in names_of_proxy(record) if each.collection == "lists")
    return {(_list_of(each), each.name) for each in lists if each.name not in (scope.lists or ())}


def _list_of(named: Named) -> str:
    return named.field.partition("[")[0]


def _others(before: ProxyRecord, after: ProxyRecord, body: ProxyUpdate) -> Iterator[str]:
    """The fields of the whole machine that the change alters."""
    yield from (name for name in _OF_ALL if getattr(before, name) != getattr(after, name))
    known, given = before.tls or ProxyTls(), after.tls or ProxyTls()
    yield from (f"tls.{name}" for name in _FILES if getattr(known, name) != getattr(given, name))
    files = {None, *(each.ca_file for each in before.upstreams)}
    for index, entry in enumerate(body.upstreams or ()):
        if entry.tls is not None and entry.tls.ca_file not in files:
            yield f"upstreams[{index}].tls.ca_file"
