"""What the next program gets of proxies that were made or removed while this one ended for it."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

from actors.supervision.listeners.registry import ListenerRegistry
from actors.supervision.processes.proxy_actors import ProxyActors
from tests.kit.ports import free_port
from tests.kit.standin_actors import spec

LOCAL = "127.0.0.1"


def test_a_proxy_that_was_just_made_is_left_with_its_socket_and_one_that_was_removed_is_not() -> None:
    listeners = ListenerRegistry(lambda: 0.0)
    noop: Any = SimpleNamespace()
    actors = ProxyActors(noop, noop, "a:B", noop, listeners, noop, lambda _proxy_id: None)
    made, gone = free_port(), free_port()
    listeners.keep("gone", LOCAL, gone)
    actors.by_id["gone"] = noop
    listeners.reserve("made", LOCAL, made)
    descriptor = listeners.get("made")
    assert descriptor is not None
    number = descriptor.fileno()

    actors.settle_listeners({"made": spec("made", made)})
    assert listeners.hand_over() == [number]
    os.close(number)
