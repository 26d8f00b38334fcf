"""`GET /search`: what there is by name, of all kinds at once, as far as the caller may list it.

Each kind is a row of `SEARCHED`: the permission of its list, what goes through its objects, and what a line says about
one. The order is by where a name has the text: as all of it, as its beginning, as that of a word, or as any part. Other
fields come behind all of these but a part.

Objects are in memory, accounts are found by one pass over an index, and hosts were counted before: another process is
asked only for the hosts of the first search in a while, and for the states of proxies.
"""

from __future__ import annotations

import heapq
import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Literal, NamedTuple, get_args

from api.call import Call, Reply
from api.engine.kind import ObjectKind
from api.engine.operation import ANY, V1, get, resource
from api.engine.responses import NodesMeta, ResponseModel
from api.errors import Invalid, NotFound
from api.http.query import AllNodes, integer, several, text
from api.objects.accounts.account_kind import StoredInline, status_of
from api.objects.accounts.plan_kind import PLANS
from api.objects.named.list_kind import LISTS
from api.objects.named.policy_kind import POLICIES
from api.objects.named.pool_kind import POOLS
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_operations import has_port, line_of
from api.objects.users.user_kind import USERS
from api.objects.webhooks.webhook_kind import WEBHOOKS
from api.security.caller import Caller
from api.store.accounts import AccountSelection
from config.model.nodes import NodeRecord
from config.model.webhooks import masked_url
from config.settings.loading import KEYS
from config.settings.runtime import visible_settings
from config.text.formatting import counted

SearchedKind = Literal[
    "proxy", "account", "user", "pool", "policy", "list", "plan", "webhook", "node", "host", "setting"
]
MatchKind = Literal["exact", "prefix", "word", "part"]
_MATCHES: tuple[MatchKind, ...] = get_args(MatchKind)
_OF_NAME, _OF_OTHERS = (0, 1, 2, 6), (3, 4, 5, 7)
"""The order of matches in a name, and of those in another field."""
JUDGED = 500
"""Of more proxies or accounts with the text it is these: whose names begin with it, then the first ones."""


class SearchResult(ResponseModel):
    """Something with the text. `field` has it: all of it (`exact`), its beginning, that of a word, or any part.

    The id of a host and of a setting is its name. `detail` is a short line about it, such as address and state.
    """

    kind: SearchedKind
    id: str
    name: str
    detail: str
    field: str
    match: MatchKind


class SearchResults(ResponseModel):
    """The best matches of each kind, the kind with the best one first. `more` are the kinds that have others."""

    results: list[SearchResult]
    more: list[SearchedKind]
    meta: NodesMeta | None = None


def _read_text(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value.strip()


class SearchQuery(AllNodes):
    """The text, the kinds, and how many of each."""

    q: str | None = text(
        "The text, which names, ids or other fields have; ignores case", "crawler", 100, 1, read=_read_text
    )
    kinds: tuple[str, ...] | None = several("Only these kinds", get_args(SearchedKind), "kind", "proxy,account")
    limit: int = integer("The number of results of each kind at most", 1, 50, 5)


class _Match(NamedTuple):
    """Something that matches. They are sorted by it; `weight` decides among equal matches."""

    order: int
    weight: int
    name: str
    id: str
    field: str
    match: MatchKind


@dataclass(frozen=True, slots=True)
class Searched:
    """A kind. `find` gives what has the text, in any order, `line` says about one with this id or raises `NotFound`.

    A key with a scope of proxies finds what is `in_scopes`, as far as the scope names it.
    """

    read: str
    find: Callable[[Call, str], Iterator[_Match]]
    line: Callable[[Call, str], str]
    in_scopes: bool = False

    def is_for(self, caller: Caller) -> bool:
        """Whether this caller may list any."""
        return caller.may(self.read) and (self.in_scopes or caller.narrowed is None)


def search(call: Call) -> Reply:
    """Search everything by name.

    Returns the proxies, accounts, users, pools, policies, lists, plans, webhooks, nodes, hosts of the last hour and
    settings that have the text in their name, their id or another field: the best matches of each kind. Kinds that the
    caller may not read are left out.
    """
    query: SearchQuery = call.query
    if query.q is None:
        raise Invalid("q", "is required")
    groups: list[tuple[SearchedKind, list[_Match]]] = []
    for kind, searched in SEARCHED.items():
        if (query.kinds is None or kind in query.kinds) and searched.is_for(call.caller):
            groups.append((kind, heapq.nsmallest(query.limit + 1, searched.find(call, query.q))))
    groups = sorted((each for each in groups if each[1]), key=lambda group: group[1][0].order)
    results = [view for kind, found in groups for each in found[: query.limit] for view in _views(call, kind, each)]
    return Reply({"results": results, "more": [kind for kind, found in groups if len(found) > query.limit]})


def _views(call: Call, kind: SearchedKind, found: _Match) -> Iterator[dict[str, Any]]:
    """One, or none of what was deleted meanwhile."""
    with suppress(NotFound):
        line = SEARCHED[kind].line(call, found.id)
        yield {
            "kind": kind,
            "id": found.id,
            "name": found.name,
            "detail": line,
            "field": found.field,
            "match": found.match,
        }


# --- whether something matches ---


def place_of_match(folded: str, q: str) -> int:
    """How a text has `q`, which is in it: 0 all of it is, 1 its beginning, 2 that of a word, 3 a part of one."""
    at = folded.find(q)
    if at == 0:
        return int(len(folded) > len(q))
    while at > 0 and folded[at - 1].isalnum():
        at = folded.find(q, at + 1)
    return 3 if at < 0 else 2


def _judged(
    q: str, identifier: str, name: str, texts: Sequence[str], others: Sequence[str], weight: int = 0
) -> list[_Match]:
    """This one with its best match, or nothing. `texts` are the name and `others`, in the case of `q`.

    The last name of a field in `others` is that of all the texts that follow.
    """
    matches = [(place, each) for place, each in enumerate(texts) if q in each]
    if not matches and identifier != q:
        return []
    if identifier == q != name:
        return [_Match(_OF_NAME[0], weight, name, identifier, "id", _MATCHES[0])]
    found = [(place, place_of_match(each, q)) for place, each in matches]
    order, place, match = min(((_OF_OTHERS if place else _OF_NAME)[match], place, match) for place, match in found)
    field = others[min(place, len(others)) - 1] if place else "name"
    return [_Match(order, weight, name, identifier, field, _MATCHES[match])]


# --- the kinds ---


def _proxies(call: Call, q: str) -> Iterator[_Match]:
    folded, scope, is_port = q.casefold(), call.caller.scope, q.isdecimal()
    having: tuple[list[StoredProxy], list[StoredProxy]] = [], []
    for each in call.services.proxies.all():
        at = each.once(line_of).find(folded)
        if at >= 0 or each.record.id == folded or (is_port and has_port(each, q)):
            having[at != 0].append(each)
    named = (each for each in chain(*having) if scope is None or each.record.id in scope)
    for each in islice(named, JUDGED):
        record, texts = each.record, each.once(line_of).split("\n")
        found = _judged(folded, record.id, record.name, texts, ("host", "port", "tag"))
        yield from found or [_Match(_OF_OTHERS[0], 0, record.name, record.id, "port", _MATCHES[0])]


def _line_of_proxy(call: Call, proxy_id: str) -> str:
    services, nodes = call.services, call.nodes
    proxy = services.proxies.get(proxy_id)
    record, runtimes = proxy.record, services.runtime.runtimes() or {}
    host = f"[{record.host}]" if ":" in record.host and "{" not in record.host else record.host
    states = services.proxies_over_nodes.states([proxy], runtimes, nodes.ids) if nodes.are_several else []
    states = states or [runtimes[each].state for each in (proxy_id,) if each in runtimes]
    state = states[0] if states else record.status if record.status == "active" else "stopped"
    return f"{record.protocol} {host}:{record.ports}, {state}"


def _accounts(call: Call, q: str) -> Iterator[_Match]:
    services, folded = call.services, q.lower()
    found = services.account_store.accounts_named_like(q, JUDGED)
    inline = services.inline_accounts.page(AccountSelection(q=q), None, JUDGED)
    rows = {identifier: (username, searched) for identifier, username, searched in found}
    rows |= {one.account.id: (one.account.username, one.account.username.lower()) for one, _place in inline}
    if q not in rows:
        with suppress(NotFound):
            rows[q] = (services.every_account.get(q).record.username, "")
    for identifier, (username, searched) in rows.items():
        yield from _judged(folded, identifier, username, searched.split("\n"), ("metadata",))


def _line_of_account(call: Call, account_id: str) -> str:
    services = call.services
    stored = services.every_account.get(account_id)
    record, plan = stored.record, services.plans.known(stored.record.plan)
    parts = [str(status_of(record, time.time()))]
    if isinstance(stored, StoredInline):
        parts.append(f"of the proxy {services.proxies.name_of(record.proxies.ids[0])}")
    return ", ".join([*parts, *([] if plan is None else [f"plan {plan.name}"])])


def _nodes(call: Call, q: str) -> Iterator[_Match]:
    if call.services.nodes.this_id is None:
        return
    for each in call.services.nodes.all():
        record = each.record
        texts = [folded.casefold() for folded in (record.name, *record.tags, *record.addresses.values())]
        others = [*("tag" for _ in record.tags), "address"]
        yield from _judged(q.casefold(), record.id, record.name, texts, others)


def _line_of_node(call: Call, node_id: str) -> str:
    node: NodeRecord = call.services.nodes.named(node_id)
    return ", ".join([node.role, *(["draining"] if node.draining else []), *node.tags])


def _hosts(call: Call, q: str) -> Iterator[_Match]:
    for host, records in _hosts_of(call).items():
        yield from _judged(q.casefold(), host, host, (host,), (), -records)


def _hosts_of(call: Call) -> dict[str, int]:
    scope = call.caller.scope
    return dict(call.services.overviews.hosts(None if scope is None else tuple(sorted(scope)), call.nodes))


def _line_of_host(call: Call, host: str) -> str:
    return f"{counted(_hosts_of(call).get(host, 0), 'request')} in the last hour"


_SETTINGS = tuple(".".join(each) for each in KEYS)


def _settings(_call: Call, q: str) -> Iterator[_Match]:
    for key in _SETTINGS:
        yield from _judged(q.casefold(), key, key, (key,), ())


def _line_of_setting(call: Call, key: str) -> str:
    """The value, of one that the API can change: others may be secrets."""
    group, _, name = key.partition(".")
    value = visible_settings(call.services.settings).get(group, {}).get(name)
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)


def _objects(kind: ObjectKind[Any], others: Sequence[str], line: Callable[[Any], str]) -> Searched:
    """The row of a kind whose objects the engine has. `line` says about a record."""

    def find(call: Call, q: str) -> Iterator[_Match]:
        names = (kind.transfer.identity, *others)
        for each in call.services.objects[kind.collection].all():
            texts = [getattr(each.record, field) or "" for field in names]
            if not kind.resource.in_scopes or call.caller.reaches(kind.collection, texts[0]):
                folded = [given.casefold() for given in texts]
                yield from _judged(q.casefold(), each.record.id, texts[0], folded, others)

    def line_of(call: Call, identifier: str) -> str:
        objects = call.services.objects[kind.collection]
        return line(objects.hooks.complete(objects.get(identifier)).record)

    return Searched(kind.resource.read, find, line_of, kind.resource.in_scopes)


def _line_of_webhook(record: Any) -> str:
    return masked_url(record.url) if record.enabled else f"{masked_url(record.url)}, disabled"


SEARCHED: dict[SearchedKind, Searched] = {
    "proxy": Searched("proxy.read", _proxies, _line_of_proxy, in_scopes=True),
    "account": Searched("proxy.read", _accounts, _line_of_account),
    "user": _objects(USERS, ("email",), lambda user: ", ".join([user.role, user.status])),
    "pool": _objects(POOLS, ("description",), lambda pool: counted(len(pool.upstreams), "upstream")),
    "policy": _objects(POLICIES, ("description",), lambda policy: counted(len(policy.rules), "rule")),
    "list": _objects(LISTS, ("description",), lambda each: each.kind),
    "plan": _objects(PLANS, ("description",), lambda plan: plan.description),
    "webhook": _objects(WEBHOOKS, (), _line_of_webhook),
    "node": Searched("settings.read", _nodes, _line_of_node),
    "host": Searched("metrics.read", _hosts, _line_of_host, in_scopes=True),
    "setting": Searched("settings.read", _settings, _line_of_setting),
}
"""In the order of kinds with matches that are as good."""

ROWS = resource(V1)(get("/search", "search", search, SearchResults, ANY, query=SearchQuery, scoped=True))
