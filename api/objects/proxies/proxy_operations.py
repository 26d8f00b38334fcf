"""The operations on proxies, and the page that the query of their list selects."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field, StrictFloat, StrictStr

from actors.bus.messages.cluster import ProxyTried, TryProxy
from actors.bus.messages.common import API
from actors.bus.messages.metrics import ProxyStats
from api.bus_bridge import ask_upstreams
from api.call import Call, Reply
from api.engine.operation import V1, create, delete, get, post, resource, update
from api.engine.responses import Deleted
from api.errors import Invalid, NotFound
from api.http.query import (
    EXAMPLE,
    PATTERN,
    ListCursor,
    NodesAlone,
    Query,
    checksum,
    choice,
    cursor,
    foreign_cursor,
    integer,
    order,
    text,
    texts,
)
from api.objects.accounts.account_names import may_use
from api.objects.named.policy_kind import unrouted
from api.objects.named.pool_kind import POOLS
from api.objects.nodes.proxies_over_nodes import listens_otherwise
from api.objects.proxies import proxy_views
from api.objects.proxies.proxy_cache import StoredProxy
from api.objects.proxies.proxy_responses import ActedProxy, NewProxy, OneProxy, Proxies, Tested
from api.objects.proxies.proxy_views import exit_view, upstream_states
from api.objects.proxies.runtime_view import PROXY_IDS, rates_of
from config.model import json_patterns
from config.model.choices import PROTOCOLS
from config.model.fields import Body, Text, example
from config.model.proxies import READ_ONLY_FIELDS, ProxyCreate, ProxyUpdate
from config.model.proxy_parts import FieldWarning, warnings

SORTS: Mapping[str, Callable[[StoredProxy], str | float]] = MappingProxyType(
    {
        "name": lambda proxy: proxy.record.name.casefold(),
        "created_at": lambda proxy: proxy.record.created_at,
        "port": lambda proxy: proxy.record.port,
        "status": lambda proxy: proxy.record.status,
    }
)
COUNTED: Mapping[str, Callable[[ProxyStats], float]] = MappingProxyType(
    {
        "connections": lambda stats: stats.active_connections,
        "requests": lambda stats: stats["requests"],
        "errors": lambda stats: stats["errors"] / stats["requests"] if stats["requests"] else -1.0,
        "traffic": lambda stats: stats["bytes_in"] + stats["bytes_out"],
    }
)
RATE = "rate"
FIGURES = (*COUNTED, RATE)
"""What else they can be sorted by, all of which changes from one page to the next."""
FiguresOf = Callable[[str], Mapping[str, float]]
"""Returns one of `FIGURES` by the ids of proxies; those without any are left out."""
NO_FIGURE = -1.0
_OLDEST_FIRST = "created_at"
"""The order in which the store has them."""
_PORT = re.compile("[0-9]{1,5}", re.ASCII)
_Key = Callable[[StoredProxy], tuple[Any, str]]

_WEB_URL = re.compile(json_patterns.WEB_URL)


def test_target(url: str) -> str:
    """`url`, if a test can ask for it; else `ValueError`."""
    if not _WEB_URL.fullmatch(url):
        raise ValueError("must be an absolute http or https URL in ASCII, without user information")
    return url


@dataclass(frozen=True, slots=True)
class ProxyPage:
    """One page; `start` is the number of proxies before it."""

    proxies: Sequence[StoredProxy]
    start: int
    per_page: int
    total: int
    next_cursor: str | None

    def pagination(self) -> dict[str, Any]:
        """Its position; there is at least one page, even if it is empty. Behind a cursor, a page may begin anywhere."""
        return {
            "page": -(-self.start // self.per_page) + 1,
            "per_page": self.per_page,
            "total": self.total,
            "pages": max(1, -(-self.total // self.per_page)),
            "has_next": self.start + self.per_page < self.total,
            "has_prev": self.start > 0,
        }


class ListProxies(Query):
    """Filters of proxies, their order, and the page."""

    page: int | None = integer("The number of the page, from 1, which is the default; not with `cursor`", 1, 1_000_000)
    per_page: int = integer("The size of the page", 1, 100, 50)
    status: str | None = choice("Only proxies of this status", ("active", "inactive"))
    protocol: str | None = choice("Only proxies of this protocol", PROTOCOLS)
    q: str | None = text(
        "Only proxies with this text in name, host, port or a tag, or with this port in their range; ignores case",
        "office",
        128,
        1,
    )
    tag: tuple[str, ...] = texts("Only proxies with this tag; several must all be there", "office", 128)
    account: str | None = text("Only proxies that this account may use; its id", "acc_0123456789abcdef", 128, lowest=1)
    sort: str = order((*SORTS, *FIGURES), _OLDEST_FIRST)
    cursor: ListCursor | None = cursor(
        "The `next_cursor` of the previous page, with the same filters and order",
        EXAMPLE,
        PATTERN,
        ListCursor.of,
    )

    def page_of(
        self,
        proxies: Sequence[StoredProxy],
        scope: frozenset[str] | None,
        figures: FiguresOf = lambda _name: {},
    ) -> ProxyPage:
        """The page of `proxies`, which are sorted by age, as far as they are in `scope`. Raises `Invalid`."""
        if self.cursor is not None and self.page is not None:
            raise Invalid("cursor", "must be left out where page is given")
        key = self._key(figures)
        found = self._sorted(self.matching(proxies, scope), key)
        start = ((self.page or 1) - 1) * self.per_page if self.cursor is None else self._after(found, self.cursor, key)
        some = found[start : start + self.per_page]
        more = some and start + self.per_page < len(found)
        following = ListCursor(key(some[-1]), self._checksum()).text() if more else None
        return ProxyPage(some, start, self.per_page, len(found), following)

    def matching(self, proxies: Sequence[StoredProxy], scope: frozenset[str] | None) -> Sequence[StoredProxy]:
        """Those of `proxies` that match all filters but `account`, as far as they are in `scope`."""
        if self.status is None and self.protocol is None and self.q is None and not self.tag and scope is None:
            return proxies
        return [each for each in proxies if self._matches(each) and (scope is None or each.record.id in scope)]

    def _matches(self, proxy: StoredProxy) -> bool:
        return (
            self.status in (None, proxy.record.status)
            and self.protocol in (None, proxy.record.protocol)
            and all(each in proxy.record.tags for each in self.tag)
            and (self.q is None or _has_text(proxy, self.q))
        )

    def _sorted(self, proxies: Sequence[StoredProxy], key: _Key) -> Sequence[StoredProxy]:
        if self.sort == _OLDEST_FIRST:
            return proxies
        return sorted(proxies, key=key, reverse=self.sort.startswith("-"))

    def _key(self, figures: FiguresOf) -> _Key:
        name = self.sort.removeprefix("-")
        if name in SORTS:
            return lambda proxy: (SORTS[name](proxy), proxy.record.id)
        found = figures(name)
        return lambda proxy: (found.get(proxy.record.id, NO_FIGURE), proxy.record.id)

    def _after(self, found: Sequence[StoredProxy], cursor: ListCursor, key: _Key) -> int:
        """How many of the sorted `found` are not beyond the cursor. Raises `Invalid`."""
        place, reverse = cursor.position_in(self._checksum()), self.sort.startswith("-")
        try:
            return sum(key(each) >= place if reverse else key(each) <= place for each in found)
        except TypeError as error:  # a forged one, of a text where there is a number
            raise Invalid("cursor", str(foreign_cursor())) from error

    def _checksum(self) -> int:
        return checksum([self.status, self.protocol, self.q, sorted(set(self.tag)), self.account, self.sort])


def _has_text(proxy: StoredProxy, text: str) -> bool:
    return text.casefold() in proxy.once(line_of) or has_port(proxy, text)


def has_port(proxy: StoredProxy, text: str) -> bool:
    """Whether this is one port of its range."""
    return bool(proxy.record.last_port) and _PORT.fullmatch(text) is not None and int(text) in proxy.record.ports


def line_of(proxy: StoredProxy) -> str:
    """What `q` may be a part of, without regard to case: name, host, port and tags, separated by ends of lines."""
    record = proxy.record
    return "\n".join((record.name, record.host, str(record.ports), *record.tags)).casefold()


TEST_TIMEOUT = 15.0
FAR_TIMEOUT = 8.0
"""Seconds that a test has at most where other nodes are asked, which have little more."""
ADMIT = 2.0
_ONE = "/{proxy_id}"


class ProxyTest(Body):
    """The optional body of a test. `timeout` is in seconds."""

    model_config = example({"url": "https://example.com/", "timeout": 10})

    url: Annotated[StrictStr, Text(0, 2048, test_target, pattern=json_patterns.WEB_URL, lengths=False)] | None = None
    timeout: Annotated[StrictFloat, Field(gt=0, le=60), json_patterns.number(60, exclusiveMinimum=0)] = TEST_TIMEOUT


def list_proxies(call: Call) -> Reply:
    """List proxies.

    Returns one page of proxies, each with its actual state and statistics; by default the oldest come first. Follow
    `next_cursor` for the next page: unlike `page`, it neither repeats nor omits a proxy when others are created or
    deleted meanwhile.
    """
    proxies = usable(call, call.query.account)
    page = call.query.page_of(proxies, call.caller.scope, lambda name: _figures(call, name))
    views = proxy_views.listed(call.services.runtime, page.proxies)
    views = call.services.proxies_over_nodes.with_nodes(views, page.proxies)
    return Reply({"proxies": views, "pagination": page.pagination(), "next_cursor": page.next_cursor})


def _figures(call: Call, name: str) -> Mapping[str, float]:
    """See `FiguresOf`; empty while the collector does not reply."""
    if name != RATE:
        return {each: COUNTED[name](stats) for each, stats in call.services.runtime.stats().items()}
    return rates_of(call.services.bridge, PROXY_IDS)


def usable(call: Call, account_id: str | None) -> Sequence[StoredProxy]:
    """All proxies, or those that this account may use. Raises `Invalid`."""
    proxies = call.services.proxies.all()
    if account_id is None:
        return proxies
    if call.caller.scope is not None:
        raise Invalid("account", "must be left out by a key with a scope, which sees no accounts")
    try:
        named = call.services.every_account.get(account_id).record.proxies
    except NotFound as error:
        raise Invalid("account", f"there is no account {account_id!r}") from error
    return [each for each in proxies if may_use(named, each.record)]


def create_proxy(call: Call) -> Reply:
    """Create a proxy.

    Binds the listening socket, stores the proxy and starts its process. If the address cannot be bound, the response
    is 400 on `port` or `host`, and nothing is stored. The signing secret of a back end is in this response only.
    """
    proxy = call.services.proxies.create(call.body)
    headers = {"Location": f"/api/v1/proxies/{proxy.record.id}"}
    view = proxy_views.with_backend_secret(proxy_views.created(proxy), proxy)
    return Reply({"proxy": view, "warnings": _warnings(proxy) + _refusals(call, proxy)}, 201, proxy.revision, headers)


def get_proxy(call: Call) -> Reply:
    """Show a proxy.

    Returns the configuration of the proxy, its actual state under `runtime` and its statistics. The `ETag` of the
    response can be sent as `If-Match` with an update.
    """
    return _one(call, call.services.proxies.get(call.params["proxy_id"]))


def update_proxy(call: Call) -> Reply:
    """Update a proxy.

    Changes the given fields and keeps all others. The change applies to new connections at once and ends none, unless
    it takes a client's access away. A new address listens before the old one closes, and its connections drain.
    """
    before = call.services.proxies.get(call.params["proxy_id"]).record
    proxy = call.services.proxies.update(call.params["proxy_id"], call.body, call.if_match, call.caller.narrowed)
    refused = _refusals(call, proxy) if listens_otherwise(vars(before), vars(proxy.record)) else []
    return _one(call, proxy, refused)


def delete_proxy(call: Call) -> Reply:
    """Delete a proxy.

    Closes the listening socket, drains open connections and removes the configuration. The statistics and access
    records of the proxy are kept until their retention ends.
    """
    proxy_id = call.params["proxy_id"]
    call.services.proxies.delete(proxy_id, call.if_match)
    return Reply({"id": proxy_id, "deleted": True})


def start_proxy(call: Call) -> Reply:
    """Start a proxy.

    Sets the proxy to `active` and starts its process. `changed` is false if it was active already.
    """
    proxy, changed = call.services.proxies.start(call.params["proxy_id"], call.if_match, call.caller.narrowed)
    refused = _refusals(call, proxy) if changed else []
    return _acted(call, proxy, changed, "The proxy was started" if changed else "The proxy was active already", refused)


def stop_proxy(call: Call) -> Reply:
    """Stop a proxy.

    Sets the proxy to `inactive`, closes its listening socket and drains open connections. `changed` is false if it was
    inactive already.
    """
    proxy, changed = call.services.proxies.stop(call.params["proxy_id"], call.if_match)
    return _acted(call, proxy, changed, "The proxy was stopped" if changed else "The proxy was inactive already")


def restart_proxy(call: Call) -> Reply:
    """Restart a proxy.

    Starts a new process on the same listening socket and drains the old one, so no connection is refused. An inactive
    proxy is started. In a fleet it is restarted on all nodes that run it.
    """
    proxy = call.services.proxies.restart(call.params["proxy_id"], call.if_match, call.caller.narrowed, call.nodes)
    return _acted(call, proxy, True, "The proxy was restarted")


def test_proxy(call: Call) -> Reply:
    """Test a proxy with one request.

    Sends one GET through the proxy to `url`, as an authorized client would. The response is 200 also when the test
    fails; `status` and `error` in `test_result` have the outcome. In a fleet each node that runs the proxy sends one,
    with a timeout of 8 seconds at most, and `nodes` has all outcomes.
    """
    proxy, nodes = call.services.proxies.get(call.params["proxy_id"]), call.nodes
    url, timeout = call.body.url, float(call.body.timeout)
    ids = nodes.that_run(proxy.record) if nodes.are_several else []
    if not ids or ids == [nodes.own_id]:
        proxy = call.services.nodes.served(proxy) or proxy
        result = call.services.tester.run(proxy, url, timeout, call.request_id)
        return Reply({"test_result": _visible(call, result)})
    message = TryProxy(proxy.record.id, url, min(timeout, FAR_TIMEOUT), call.request_id)
    tried = nodes.request(call.services.bridge, API, message, ProxyTried, message.timeout + ADMIT, ids)
    if not tried:
        nodes.refuse_missing()
    worst = min(tried.values(), key=lambda each: (each.status == "success", -each.response_time))
    every = [{**_visible(call, asdict(each)), **nodes.of_record(to)} for to, each in tried.items()]
    return Reply({"test_result": _visible(call, asdict(worst)), "nodes": every})


def _visible(call: Call, result: dict[str, Any]) -> dict[str, Any]:
    """As far as the caller may see it."""
    upstreams = call.upstreams
    hides = upstreams is not None and result["parent"] not in upstreams
    return {**result, "parent": None} if hides else result


Warnings = list[dict[str, str]]


def _one(call: Call, proxy: StoredProxy, more: Warnings | None = None) -> Reply:
    warned = _warnings(proxy) + (more or [])
    return Reply({"proxy": _detail(call, proxy), "warnings": warned}, revision=proxy.revision)


def _acted(call: Call, proxy: StoredProxy, changed: bool, message: str, more: Warnings | None = None) -> Reply:
    warned = _warnings(proxy) + (more or [])
    data = {"proxy": _detail(call, proxy), "changed": changed, "message": message, "warnings": warned}
    return Reply(data, revision=proxy.revision)


def _refusals(call: Call, proxy: StoredProxy) -> Warnings:
    """Of other nodes of a fleet."""
    return [each._asdict() for each in call.services.proxies_over_nodes.refusals(proxy)]


def _warnings(proxy: StoredProxy) -> Warnings:
    found = (*proxy.once(_exposure), *unrouted(proxy.record.bind_address, "bind_address"))
    return [each._asdict() for each in found]


def _exposure(proxy: StoredProxy) -> tuple[FieldWarning, ...]:
    return tuple(warnings(proxy.record))


def _shows_pool(call: Call, proxy: StoredProxy) -> bool:
    """Whether the proxy has a pool whose upstreams the caller may see."""
    pool = proxy.record.pool
    return pool is not None and call.caller.reaches("pools", pool)


def _detail(call: Call, proxy: StoredProxy) -> dict[str, Any]:
    view = proxy_views.with_backend_secret(proxy_views.detail(call.services.runtime, proxy), proxy)
    (view,) = call.services.proxies_over_nodes.with_nodes([view], [proxy])
    if not call.caller.may("proxy.write"):
        view = proxy_views.with_masked_backend(view)
    runtime, record = view["runtime"], proxy.record
    if runtime is None:
        return view
    states = ask_upstreams(call.services.bridge, record) if record.upstreams or _shows_pool(call, proxy) else None
    if record.upstreams or _shows_pool(call, proxy):
        runtime["upstreams"] = upstream_states(states)
    runtime["exit"] = exit_view(record, None if states is None else states.states, _pool_status(call, proxy))
    return view


def _pool_status(call: Call, proxy: StoredProxy) -> dict[str, Any] | None:
    pool = proxy.record.pool
    if pool is None or not _shows_pool(call, proxy):
        return None
    objects = call.services.shared_objects
    try:
        return call.services.pool_states.status(objects.complete(objects.get(POOLS, pool)).record)
    except NotFound:
        return None


ROWS = resource(f"{V1}/proxies", read="proxy.read", write="proxy.write", delete="proxy.delete")(
    get("", "listProxies", list_proxies, Proxies, query=ListProxies, scoped=True),
    create("", "createProxy", create_proxy, NewProxy, body=ProxyCreate, read_only=READ_ONLY_FIELDS),
    get(_ONE, "getProxy", get_proxy, OneProxy, if_match=True),
    *update(
        _ONE,
        ("replaceProxy", "updateProxy"),
        update_proxy,
        OneProxy,
        body=ProxyUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    delete(_ONE, "deleteProxy", delete_proxy, Deleted, if_match=True),
    post(f"{_ONE}/start", "startProxy", start_proxy, ActedProxy, if_match=True),
    post(f"{_ONE}/stop", "stopProxy", stop_proxy, ActedProxy, if_match=True),
    post(
        f"{_ONE}/restart",
        "restartProxy",
        restart_proxy,
        ActedProxy,
        query=NodesAlone,
        if_match=True,
        audit="proxy.restarted",
    ),
    post(
        f"{_ONE}/test",
        "testProxy",
        test_proxy,
        Tested,
        query=NodesAlone,
        body=ProxyTest,
        optional_body=True,
        audit="proxy.tested",
    ),
)
