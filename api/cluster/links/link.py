"""The bus over nodes: a request to an actor of another node goes to that node's internal API, which asks its own bus.

The requests of one call to the same node are one HTTP request: frames of the bus in base64, each with its address. All
nodes are asked at once, and each reply comes within the one deadline or is `NodeMissing`. Who called was authorized
where the call came in; so a node takes from others only what `FROM_OTHER_NODES` names: it reads, or does what an
operator may do to what runs. Nodes may be of two releases: see `actors.bus.codec`.

A request of which nothing but a reply follows may go over a connection that is open. If that fails before its time is
over, the other side had ended the connection, and the request is sent once more over a new one. What acts on the other
node is never sent twice, so it has a new one always. The other side looks up in each request whether we may still ask.
"""

from __future__ import annotations

import base64
import binascii
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from actors.bus.codec import Envelope, EnvelopeRole, ProtocolError, decode, encode
from actors.bus.messages import accounts, cluster, dns, events, forwarding, metrics, records, specs, supervision
from actors.bus.messages.common import Failed
from api.bus_bridge import NODE_MARK, Bridge, NodeMissing, node_id_of
from api.cluster.links.certificates import NodeCertificateError, OwnCertificate
from api.cluster.links.internal_api import (
    REPLY,
    SILENCE,
    NodeRefused,
    NodeUnreachable,
    Place,
    Route,
    can_be_read,
    exchange,
    opened,
    place_of_node,
)
from config import OperatorError

PATH = "/bus"
AT_ONCE = 4
"""Requests to one node."""
WAIT, LONGEST = 3.0, 10.0
"""Seconds that a node is waited for at most, whatever the request has; the longer of what is `SLOW`."""
MISSED, PROBE = 2, 0.5
"""A node that has missed so many deadlines in a row is first asked for nothing, with so many seconds."""
ON_THE_WAY = 0.1
"""The share of the time that the way there and back may take: the other node has the rest."""
OPEN = 2
"""Connections to a node that stay open; the other side has a bound over all nodes."""
IDLE = 30.0
"""Seconds for which one stays open without a request; the other side closes it after twice of it."""

READS: frozenset[type[object]] = frozenset(
    {
        accounts.QueryAccounts,
        accounts.QueryReached,
        accounts.QueryUsage,
        cluster.QueryPoolState,
        cluster.VerifyTrail,
        dns.QueryDns,
        dns.QueryDnsCache,
        events.QueryDeliveries,
        events.QueryWebhookSender,
        events.QueryWebhookStatus,
        forwarding.Explain,
        forwarding.GroupConnections,
        forwarding.QueryConnections,
        metrics.QueryMetricSeries,
        metrics.QueryRealtime,
        metrics.QueryStats,
        metrics.QuerySystem,
        records.CountLogs,
        records.QueryLogs,
        records.TailLogs,
        specs.QueryUpstreams,
        supervision.QueryRuntime,
        supervision.QueryWorkers,
        supervision.StartExplainer,
    }
)
ACTS: frozenset[type[object]] = frozenset(
    {
        cluster.TryProxy,
        dns.ForgetNames,
        events.Redeliver,
        events.SendTestEvent,
        forwarding.CloseConnections,
        supervision.RestartProxy,
    }
)
FROM_OTHER_NODES = READS | ACTS
"""What one node may send to actors of another."""
SLOW: frozenset[type[object]] = frozenset(
    {
        cluster.TryProxy,
        cluster.VerifyTrail,
        events.SendTestEvent,
        records.CountLogs,
        records.QueryLogs,
        records.TailLogs,
        supervision.RestartProxy,
    }
)


class NodeLink:
    """Asks other nodes. Thread-safe."""

    def __init__(self, own: OwnCertificate, nodes: Callable[[str], Mapping[str, Any] | None]) -> None:
        """`nodes` gives the document of a node by its id, None when there is none."""
        self._own = own
        self._nodes = nodes
        self._lock = threading.Lock()
        self._known: dict[str, _OtherNode] = {}

    def ask_all(self, requests: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """As `Bridge.ask_all`, of addresses that begin with a node."""
        longest = max((LONGEST if type(each) in SLOW else WAIT for each in requests.values()), default=WAIT)
        until = time.monotonic() + min(timeout, longest)
        by_node: dict[str, dict[str, Any]] = {}
        for to, message in requests.items():
            by_node.setdefault(node_id_of(to), {})[to] = message
        found: dict[str, Any] = {}

        def ask_node(node_id: str) -> None:
            found.update(self._ask_node(node_id, by_node[node_id], until))

        first, *others = by_node
        threads = [threading.Thread(target=ask_node, args=(each,), name="link", daemon=True) for each in others]
        for each in threads:
            each.start()
        ask_node(first)
        for each in threads:
            each.join(max(0.0, until - time.monotonic()) + ON_THE_WAY)
        return {to: found.get(to) or NodeMissing(to, "no response in time") for to in requests}

    def close(self) -> None:
        """Close the connections that are open."""
        with self._lock:
            for each in self._known.values():
                each.close()

    def _ask_node(self, node_id: str, requests: Mapping[str, Any], until: float) -> dict[str, Any]:
        with self._lock:
            node = self._known.setdefault(node_id, _OtherNode(self._own))
        if not node.turns.acquire(timeout=max(0.0, until - time.monotonic())):
            return {to: NodeMissing(to, f"{AT_ONCE} requests to it have no response yet") for to in requests}
        try:
            return dict(zip(requests, self._replies(node, node_id, requests, until), strict=True))
        except OperatorError as error:
            return {to: NodeMissing(to, _reason(error)) for to in requests}
        finally:
            node.turns.release()

    def _replies(self, node: _OtherNode, node_id: str, requests: Mapping[str, Any], until: float) -> Sequence[Any]:
        """Raises `NodeCertificateError`, `NodeRefused`, `NodeUnreachable`."""
        try:
            there = place_of_node(self._nodes(node_id))
        except NodeUnreachable:
            node.close()
            raise
        try:
            if node.missed >= MISSED:
                node.ask(there, _body({}, PROBE), _left(until, PROBE), True)
            left = _left(until, LONGEST)
            body = _body(requests, left * (1 - ON_THE_WAY))
            may_repeat = ACTS.isdisjoint(map(type, requests.values()))
            reply = node.ask(there, body, left, may_repeat)
        except NodeUnreachable:
            node.missed += 1
            raise
        node.missed = 0
        return _messages(reply, requests)


class _NodeSilent(NodeUnreachable):
    """It responds to no request at all."""


class _OtherNode:
    """What is known of one, and the connections to it that are open."""

    def __init__(self, own: OwnCertificate) -> None:
        self.turns = threading.BoundedSemaphore(AT_ONCE)
        self.missed = 0
        self._own = own
        self._lock = threading.Lock()
        self._place: Place | None = None
        self._idle: list[tuple[float, ssl.SSLSocket]] = []

    def ask(self, place: Place, body: Mapping[str, Any], within: float, may_repeat: bool) -> dict[str, Any]:
        """The reply of the node within so many seconds.

        Raises `NodeCertificateError` when another one is there, `NodeRefused`, `NodeUnreachable`.
        """
        until = time.monotonic() + within
        known = self._taken(place) if may_repeat else None
        if known is not None:
            try:
                return self._exchange(place, known, body, until, within)
            except _NodeSilent:
                raise
            except NodeUnreachable:
                if time.monotonic() >= until:
                    raise
        begun = opened(*place, min(until, time.monotonic() + SILENCE), within, self._own)
        return self._exchange(place, begun, body, until, within)

    def close(self) -> None:
        """Close those that are open."""
        with self._lock:
            self._close()

    def _probe(self, place: Place) -> None:
        """Raises `_NodeSilent` when it does not respond to nothing either."""
        try:
            self.ask(place, _body({}, PROBE), PROBE, True)
        except NodeUnreachable as error:
            raise _NodeSilent(str(error)) from error

    def _exchange(
        self, place: Place, secured: ssl.SSLSocket, body: Mapping[str, Any], until: float, within: float
    ) -> dict[str, Any]:
        goes_on = False
        try:
            probe = partial(self._probe, place) if within > WAIT else None
            reply, goes_on = exchange(secured, PATH, body, until, within, probe)
        finally:
            self._give_back(place, secured, goes_on)
        return reply

    def _taken(self, place: Place) -> ssl.SSLSocket | None:
        """One that is open, and has nothing to be read: that would be its end."""
        with self._lock:
            if self._place != place:
                self._close()
                self._place = place
            while self._idle:
                since, secured = self._idle.pop()
                if time.monotonic() - since < IDLE and not can_be_read(secured):
                    return secured
                secured.close()
        return None

    def _give_back(self, place: Place, secured: ssl.SSLSocket, goes_on: bool) -> None:
        with self._lock:
            if goes_on and self._place == place and len(self._idle) < OPEN:
                self._idle.append((time.monotonic(), secured))
                return
        with suppress(OSError):
            secured.close()

    def _close(self) -> None:
        self._place = None
        for _since, secured in self._idle:
            with suppress(OSError):
                secured.close()
        self._idle.clear()


def _left(until: float, most: float) -> float:
    return max(0.01, min(until - time.monotonic(), most))


def _body(requests: Mapping[str, Any], within: float) -> dict[str, Any]:
    asked = [[to.partition(NODE_MARK)[2], _text(message, EnvelopeRole.ASK)] for to, message in requests.items()]
    return {"within": within, "asked": asked}


def _messages(reply: Mapping[str, Any], requests: Mapping[str, Any]) -> list[Any]:
    """The reply to each request. Raises `NodeRefused` when it is no reply of a node."""
    frames = reply.get("replies")
    if not isinstance(frames, list) or len(frames) != len(requests):
        raise NodeRefused("its response is of another kind")
    return [_reply(each) for each in frames]


def _reply(frame: Any) -> Any:
    try:
        return _message(frame)
    except ProtocolError as error:
        return Failed(f"the reply of the other node can't be read: {error}")


def _text(message: Any, role: EnvelopeRole) -> str:
    return base64.b64encode(encode(Envelope(message, 0, role))).decode("ascii")


def _message(frame: Any) -> Any:
    try:
        content = base64.b64decode(frame, validate=True)
    except (TypeError, ValueError, binascii.Error) as error:
        raise ProtocolError("a frame is no base64") from error
    return decode(content, of_other_release=True).message


def _reason(error: OperatorError) -> str:
    """Without the address of the node, which not everyone may know who can read what is on it."""
    if isinstance(error, NodeCertificateError):
        return "another certificate is there than the one that it has in the fleet"
    return str(error)


# --- the other side ---------------------------------------------------------------------------------------------------


def route_to(bridge: Bridge) -> Route:
    """What responds at `PATH`: asks this bus for other nodes that are full ones."""
    return Route(lambda _node, body: _respond(bridge, body))


def _respond(bridge: Bridge, body: Mapping[str, Any]) -> dict[str, Any]:
    """Raises `NodeRefused`."""
    asked, within = body.get("asked"), body.get("within")
    if not isinstance(asked, list) or type(within) not in (int, float) or not all(map(_is_request, asked)):
        raise NodeRefused("it is no request to the bus", 400)
    replies: dict[str, Any] = {}
    requests: dict[str, Any] = {}
    for to, frame in asked:
        try:
            requests[to] = _allowed(to, _message(frame))
        except ProtocolError as error:
            replies[to] = Failed(f"this node can't do that: {error}")
    if requests:
        replies |= bridge.ask_all(requests, max(0.0, min(float(within or 0), LONGEST)))
    return {"replies": _bounded([_text(replies[to], EnvelopeRole.REPLY) for to, _frame in asked])}


def _is_request(each: Any) -> bool:
    return isinstance(each, list) and len(each) == 2 and all(isinstance(part, str) for part in each)


def _allowed(to: str, message: Any) -> Any:
    if type(message) not in FROM_OTHER_NODES or NODE_MARK in to:
        raise ProtocolError(f"{type(message).__name__} is not for other nodes to send")
    return message


def _bounded(frames: list[str]) -> list[str]:
    """As many as may be sent; the others have failed."""
    left = REPLY - 1024 * 1024
    refused = _text(Failed("the reply is too large to be sent to another node"), EnvelopeRole.REPLY)
    for index, frame in enumerate(frames):
        if len(frame) > left:
            frames[index] = refused
        left -= len(frames[index])
    return frames
