"""The bridge between the threads that serve requests and the loop thread that owns the bus.

ZeroMQ sockets belong to one thread. A request thread queues a call and writes a byte into a socket that the loop
watches; the loop sends the message, and puts the reply into a future.

Requests to the process of a proxy, or to each of its workers, are at the end. A proxy with one worker is asked by
its name. The workers of another one are asked by the addresses that the supervisor knows; one that has gone in
between has nothing to say, so those that came in its place are asked once.

The API itself is asked within its process, in a thread: its mailbox does not get what other nodes want to know.

An address may begin with the id of another node of the fleet, `nod_0123456789abcdef!forwarding.prx_1/7`: what has it on
the bus of that node is asked (`api.cluster.links.link`).
"""

from __future__ import annotations

import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Protocol, TypeVar

from actors.bus.events import Publisher
from actors.bus.loop import Loop
from actors.bus.mailbox import ASLEEP, NOT_ON_THE_BUS, Mailbox, address_of
from actors.bus.messages.common import API, SUPERVISOR, Failed, Unreachable, forwarding_name
from actors.bus.messages.specs import QueryUpstreams, Upstreams, UpstreamState
from actors.bus.messages.supervision import QueryWorkers, RuntimeReport, Workers
from api.errors import PeerUnavailable
from config.model.proxies import ProxyRecord

log = logging.getLogger(__name__)

R = TypeVar("R")

NODE_MARK = "!"
"""Ends the id of a node in an address."""
GRACE = 1.0
"""Seconds beyond the timeout of a request after which the requesting thread stops waiting for the loop."""


class NodeMissing(Unreachable):
    """There is no reply since the whole node that was to be asked can't be reached, or did not respond in time."""

    __slots__ = ()


AskNodes = Callable[[Mapping[str, Any], float], dict[str, Any]]
"""As `Bridge.ask_all`, of what is on other nodes."""


def on_node(node_id: str, address: str) -> str:
    """The address of what has this one on the bus of another node."""
    return f"{node_id}{NODE_MARK}{address}"


def node_id_of(address: str) -> str:
    """The node in such an address; empty in one of this node."""
    return address.partition(NODE_MARK)[0] if NODE_MARK in address else ""


class Bridge(Protocol):
    """What the API needs of the bus. All may be called from any thread except the loop's."""

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        """The reply of the actor `to`, or `Unreachable`. Raises nothing for what happens on the bus."""
        ...

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        """By actor, what `ask` would return for its request. All are asked at once, so it takes `timeout` at most."""
        ...

    def publish(self, topic: str, message: Any) -> None:
        """Publish an event on the events plane soon."""
        ...


def reason_of(reply: Any) -> str:
    """The cause stated by a reply other than the expected one, for the log."""
    if isinstance(reply, Unreachable):
        return f"{reply.actor} cannot be reached: {reply.reason}"
    return reply.error if isinstance(reply, Failed) else f"unexpected reply {type(reply).__name__}"


def is_asleep(reply: object) -> bool:
    """Whether this reply of a proxy's process says that there is none, since the proxy sleeps."""
    return isinstance(reply, Unreachable) and reply.reason == ASLEEP


def request(bridge: Bridge, to: str, message: Any, *kinds: type[R], timeout: float = 5.0) -> R:
    """The reply of the actor `to`, one of `kinds`. Raises `PeerUnavailable` when there is none or another one."""
    return checked(to, bridge.ask(to, message, timeout), *kinds)


def checked(to: str, reply: Any, *kinds: type[R]) -> R:
    """The reply of the actor `to`, one of `kinds`. Raises `PeerUnavailable` when it is another one."""
    if isinstance(reply, kinds):
        return reply
    raise PeerUnavailable(to, reason_of(reply))


class LoopBridge:
    """The `Bridge` of a running actor."""

    def __init__(
        self,
        loop: Loop,
        mailbox: Mailbox,
        events: Publisher,
        nodes: Callable[[], AskNodes | None] = lambda: None,
        here: Callable[[Any], Any] = lambda _message: Failed("this API is asked nothing"),
    ) -> None:
        """`nodes` gives what asks other nodes, while this one is in a fleet; `here` replies for the API itself."""
        self._here = here
        self._loop = loop
        self._nodes = nodes
        self._mailbox = mailbox
        self._events = events
        self._calls: deque[Callable[[], None]] = deque()
        self._waiting: set[Future[Any]] = set()
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        loop.watch(self._wake_reader.fileno(), select.EPOLLIN, self._on_wake)

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        """See `Bridge.ask`."""
        if NODE_MARK in to or to == API:
            return self.ask_all({to: message}, timeout)[to]
        future: Future[Any] = Future()
        self.call(lambda: self._ask(to, message, timeout, future))
        return _reply_in(future, to, timeout + GRACE)

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        """See `Bridge.ask_all`."""
        futures: dict[str, Future[Any]] = {to: Future() for to in requests if NODE_MARK not in to}

        def send() -> None:
            for to, future in futures.items():
                if to != API:
                    self._ask(to, requests[to], timeout, future)

        self.call(send)
        if API in futures:
            asked = (requests[API], futures[API])
            threading.Thread(target=self._ask_here, args=asked, name="ask-here", daemon=True).start()
        ends = time.monotonic() + timeout + GRACE
        of_other_nodes = {to: message for to, message in requests.items() if NODE_MARK in to}
        found = self._ask_nodes(of_other_nodes, timeout) if of_other_nodes else {}
        return {**found, **{to: _reply_in(each, to, ends - time.monotonic()) for to, each in futures.items()}}

    def _ask_here(self, message: Any, future: Future[Any]) -> None:
        try:
            _resolve(future, self._here(message))
        except Exception as error:
            log.exception("the API has not replied to %s", type(message).__name__)
            _resolve(future, Failed(f"it has failed: {error}"))

    def _ask_nodes(self, requests: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        ask = self._nodes()
        if ask is None:
            return {to: NodeMissing(to, "this node asks no others") for to in requests}
        return ask(requests, timeout)

    def publish(self, topic: str, message: Any) -> None:
        """See `Bridge.publish`."""
        self.call(lambda: self._events.publish(topic, message))

    def call(self, function: Callable[[], None]) -> None:
        """Have the loop thread call `function`."""
        self._calls.append(function)
        try:
            self._wake_writer.send(b"!")
        except BlockingIOError:
            return  # the socket is full of bytes, so the loop will wake up
        except OSError as error:
            log.warning("the bus is closed: %s", error)

    def close(self) -> None:
        """At the end of the loop thread: requests that still wait get `Unreachable`."""
        self._loop.unwatch(self._wake_reader.fileno())
        for future in tuple(self._waiting):
            _resolve(future, Unreachable("", "the API is ending"))
        self._wake_reader.close()
        self._wake_writer.close()

    def _on_wake(self, _mask: int) -> None:
        try:
            self._wake_reader.recv(4096)
        except BlockingIOError:
            return  # an earlier turn has read the byte
        while self._calls:
            self._calls.popleft()()

    def _ask(self, to: str, message: Any, timeout: float, future: Future[Any]) -> None:
        self._waiting.add(future)

        def on_reply(reply: Any) -> None:
            self._waiting.discard(future)
            _resolve(future, reply)

        self._mailbox.ask(to, message, on_reply, timeout)


def _reply_in(future: Future[Any], to: str, seconds: float) -> Any:
    """The reply, or `Unreachable` when the loop thread gives none in so many seconds."""
    try:
        return future.result(max(0.0, seconds))
    except FutureTimeout:
        return Unreachable(to, "the loop does not respond")


def _resolve(future: Future[Any], reply: Any) -> None:
    if not future.done():
        future.set_result(reply)


SUPERVISOR_TIMEOUT = 2.0
"""Seconds that the supervisor may take to reply; then the name leads to one of the workers."""
ASK_TIMEOUT = 2.0
ASKED_AT_ONCE = 16


def addresses_of(bridge: Bridge, proxies: Iterable[ProxyRecord]) -> dict[str, ProxyRecord]:
    """By address on the bus, the proxy of each process that serves one of these."""
    found: dict[str, ProxyRecord] = {}
    several = []
    for proxy in proxies:
        if proxy.workers == 1:
            found[forwarding_name(proxy.id)] = proxy
        else:
            several.append(proxy)
    known = _instances(bridge, several)
    for proxy in several:
        name = forwarding_name(proxy.id)
        found.update((address_of(name, each), proxy) for each in known.get(proxy.id, ()))
        if proxy.id not in known:
            found[name] = proxy
    return found


def older_addresses(report: RuntimeReport | None, proxies: Iterable[ProxyRecord]) -> dict[str, ProxyRecord]:
    """By address on the bus, the proxy of each process of an older program that drains."""
    older = {} if report is None else report.older
    return {address_of(forwarding_name(proxy.id), each): proxy for proxy in proxies for each in older.get(proxy.id, ())}


def _instances(bridge: Bridge, proxies: list[ProxyRecord]) -> Mapping[str, tuple[int, ...]]:
    if not proxies:
        return {}
    reply = bridge.ask(SUPERVISOR, QueryWorkers(tuple(each.id for each in proxies)), SUPERVISOR_TIMEOUT)
    return reply.instances if isinstance(reply, Workers) else {}


def ask_workers(bridge: Bridge, proxy: ProxyRecord, message: Any, timeout: float = 5.0) -> list[Any]:
    """The replies of all workers, at least one; `Unreachable` of those that don't reply."""
    addresses = list(addresses_of(bridge, [proxy]))
    replies = _ask(bridge, addresses, message, timeout)
    known = {address: reply for address, reply in replies.items() if not _has_gone(reply)}
    if proxy.workers == 1 or len(known) == len(replies):
        return list(replies.values())
    now = list(addresses_of(bridge, [proxy]))
    again = _ask(bridge, [each for each in now if each not in known], message, timeout)
    return [*known.values(), *again.values()] or list(replies.values())


def request_workers(bridge: Bridge, proxy: ProxyRecord, message: Any, kind: type[Any]) -> list[Any]:
    """The replies of all workers, which are of this kind; none of a proxy that sleeps.

    Raises `PeerUnavailable` when one doesn't reply so.
    """
    replies = ask_workers(bridge, proxy, message)
    return [checked(forwarding_name(proxy.id), each, kind) for each in replies if not is_asleep(each)]


def _has_gone(reply: Any) -> bool:
    return isinstance(reply, Unreachable) and reply.reason == NOT_ON_THE_BUS


def _ask(bridge: Bridge, addresses: list[str], message: Any, timeout: float) -> dict[str, Any]:
    if len(addresses) == 1:
        return {addresses[0]: bridge.ask(addresses[0], message, timeout)}
    return bridge.ask_all(dict.fromkeys(addresses, message), timeout)


def united_upstreams(replies: Iterable[Upstreams]) -> Upstreams:
    """The states of the same upstreams as several workers know them: what they count is added."""
    by_name: dict[str, list[UpstreamState]] = {}
    for state in (each for reply in replies for each in reply.states):
        by_name.setdefault(state.name, []).append(state)
    return Upstreams(tuple(map(_united_upstream, by_name.values())))


def _united_upstream(states: list[UpstreamState]) -> UpstreamState:
    """It is up if one worker finds it so, and down if none does and one finds that."""
    if len(states) == 1:
        return states[0]
    deciding = next(
        found for kind in ("up", "down", "unknown") if (found := [each for each in states if each.state == kind])
    )
    newest = max((each for each in states if each.last_error), key=lambda each: each.since, default=None)
    return UpstreamState(
        name=states[0].name,
        state=deciding[0].state,
        since=min(each.since for each in deciding),
        active=sum(each.active for each in states),
        connections=sum(each.connections for each in states),
        failures=sum(each.failures for each in states),
        bytes_in=sum(each.bytes_in for each in states),
        bytes_out=sum(each.bytes_out for each in states),
        latency=_mean_latency(states),
        last_error=None if newest is None else newest.last_error,
    )


def _mean_latency(states: list[UpstreamState]) -> float | None:
    """By uses."""
    known = [(each.latency, each.connections or 1) for each in states if each.latency is not None]
    uses = sum(number for _latency, number in known)
    return sum(latency * number for latency, number in known) / uses if known else None


def ask_upstreams(bridge: Bridge, record: ProxyRecord) -> Upstreams | None:
    """The states of an active proxy's upstreams; None when it has none, or when its process doesn't reply."""
    if record.status != "active" or not (record.upstreams or record.pool):
        return None
    replies = ask_workers(bridge, record, QueryUpstreams(), ASK_TIMEOUT)
    known = [each for each in replies if isinstance(each, Upstreams)]
    return united_upstreams(known) if len(known) > 1 else next(iter(known), None)


def ask_all_upstreams(bridge: Bridge, records: Iterable[ProxyRecord]) -> dict[str, tuple[UpstreamState, ...]]:
    """By proxy id, the states of the upstreams, as far as the proxies' processes reply; all are asked at once."""
    asked = [each for each in records if each.status == "active" and each.upstreams]
    if not asked:
        return {}
    with ThreadPoolExecutor(min(len(asked), ASKED_AT_ONCE)) as pool:
        replies = list(pool.map(lambda record: ask_upstreams(bridge, record), asked))
    return {each.id: reply.states for each, reply in zip(asked, replies, strict=True) if reply is not None}
