"""The events plane: PUB → XSUB/XPUB → SUB. A topic frame, then one encoded message.

A publisher never waits and never learns that there was no subscriber; so only what repeats (counters) or can be
requested again may rely on this plane alone.

==========================  ==============  ==================================================
topic                       message         published by
==========================  ==============  ==================================================
`counters.<proxy id>`       `Counters`      forwarding actors, once a second
`events.<event type>`       `Event`         supervisor, API and collector, when it happens
==========================  ==============  ==================================================
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from actors.bus.codec import Envelope, ProtocolError, decode, encode
from actors.bus.loop import Loop, bind, new_socket
from actors.bus.messages.events import Event
from actors.bus.messages.metrics import Counters

log = logging.getLogger(__name__)

REMEMBERED = 1_000
"""Events that the supervisor keeps for a subscriber that was not there."""
_EVENTS = b"events."
_SUBSCRIBE, _UNSUBSCRIBE = b"\x01", b"\x00"

OnEvent = Callable[[str, Any], None]
"""Called as `(topic, message)`."""


def counters_topic(counters: Counters) -> str:
    """Where the counters of a proxy are published."""
    return f"counters.{counters.proxy_id}"


def event_topic(event: Event) -> str:
    """Where an event is published."""
    return f"events.{event.type}"


def new_event(kind: str, data: dict[str, Any]) -> Event:
    """A fact of type `kind` (`proxy.down`) that has just happened, with an id that it keeps for ever."""
    return Event(f"evt_{secrets.token_hex(12)}", kind, time.time(), data)


class Publisher:
    """Sends facts to the subscribers."""

    def __init__(self, context: zmq.Context[Any], address: str) -> None:
        self._socket = new_socket(context, zmq.PUB)
        self._socket.connect(address)

    def publish(self, topic: str, message: Any) -> None:
        """Send and forget."""
        self._socket.send_multipart([topic.encode(), encode(Envelope(message))], zmq.NOBLOCK)

    def close(self, linger: float = 0.2) -> None:
        """What is queued gets `linger` seconds."""
        self._socket.close(linger=int(linger * 1000))


class Subscription:
    """Receives the facts of the topics that begin with one of `prefixes`."""

    def __init__(
        self, loop: Loop, context: zmq.Context[Any], address: str, prefixes: tuple[str, ...], on_event: OnEvent
    ) -> None:
        self._loop = loop
        self._on_event = on_event
        self._socket = new_socket(context, zmq.SUB)
        for prefix in prefixes:
            self._socket.setsockopt(zmq.SUBSCRIBE, prefix.encode())
        self._socket.connect(address)
        loop.attach(self._socket, self._on_frames)

    def close(self) -> None:
        """Receive nothing more."""
        self._loop.detach(self._socket)
        self._socket.close(linger=0)

    def _on_frames(self, frames: list[bytes]) -> None:
        try:
            topic, frame = frames
            message = decode(frame).message
        except (ValueError, ProtocolError) as error:
            log.error("event refused: %s", error)
            return
        self._on_event(topic.decode(errors="replace"), message)


class Forwarder:
    """The supervisor's part: what publishers send to XSUB goes out of XPUB, subscriptions go the other way.

    The last `REMEMBERED` events (not counters, which repeat) can be requested again.
    """

    def __init__(self, loop: Loop, context: zmq.Context[Any], address_in: str, address_out: str) -> None:
        self._loop = loop
        self._remembered: deque[bytes] = deque(maxlen=REMEMBERED)
        self._inward = new_socket(context, zmq.XSUB)
        self._outward = new_socket(context, zmq.XPUB)
        bind(self._inward, address_in)
        bind(self._outward, address_out)
        loop.attach(self._inward, self._outward_bound)
        loop.attach(self._outward, self._inward_bound)
        loop.send(self._inward, [_SUBSCRIBE + _EVENTS])  # else publishers drop events without a subscriber

    def publish(self, topic: str, message: Any) -> None:
        """Publish a fact of the supervisor's own."""
        self._outward_bound([topic.encode(), encode(Envelope(message))])

    def recall(self, since: float) -> tuple[Event, ...]:
        """The events since that time, oldest first, as far as they are remembered."""
        events = (_event_in(frame) for frame in self._remembered)
        return tuple(event for event in events if event is not None and event.timestamp >= since)

    def close(self) -> None:
        """Close both ends; what is queued outward gets a moment."""
        for socket in (self._inward, self._outward):
            self._loop.detach(socket)
        self._inward.close(linger=0)
        self._outward.close(linger=100)

    def _inward_bound(self, frames: list[bytes]) -> None:
        if frames != [_UNSUBSCRIBE + _EVENTS]:
            self._loop.send(self._inward, frames)

    def _outward_bound(self, frames: list[bytes]) -> None:
        if frames[0].startswith(_EVENTS) and len(frames) == 2:
            self._remembered.append(frames[1])
        self._loop.send(self._outward, frames)


def _event_in(frame: bytes) -> Event | None:
    try:
        message = decode(frame).message
    except ProtocolError as error:
        log.error("event refused: %s", error)
        return None
    return message if isinstance(message, Event) else None
