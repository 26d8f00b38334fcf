"""A subscriber of the live metrics (`metrics.publish`) for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import zmq

from tests.kit.product import Product


def live_figures(product: Product, proxy: dict[str, Any], accept: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first published figures of `proxy` that `accept` takes. Raises `AssertionError` with the last of 30."""
    context: zmq.Context[Any] = zmq.Context()
    with context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.rcvtimeo = 20_000
        subscriber.subscribe(f"metrics.proxy.{proxy['id']}")
        subscriber.connect(product.publish)
        for _ in range(30):
            figures: dict[str, Any] = msgpack.unpackb(subscriber.recv_multipart()[1])
            if accept(figures):
                return figures
    raise AssertionError(f"not published: {figures}")


def live_event(product: Product, kind: str, cause: Callable[[], object]) -> dict[str, Any]:
    """The first event of this type after `cause`. The first figures come only when all subscriptions hold."""
    context: zmq.Context[Any] = zmq.Context()
    with context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        subscriber.rcvtimeo = 20_000
        subscriber.subscribe(f"events.{kind}")
        subscriber.subscribe("metrics.system")
        subscriber.connect(product.publish)
        subscriber.recv_multipart()
        cause()
        for _ in range(30):
            topic, payload = subscriber.recv_multipart()
            if topic == f"events.{kind}".encode():
                event: dict[str, Any] = msgpack.unpackb(payload)
                return event
    raise AssertionError(f"no event {kind}")
