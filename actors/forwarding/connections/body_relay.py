"""Bulk of an exchange: bodies that the driver moves by itself, because no byte of them is the session's business.

A client connection has at most one flow in each direction, `up` to the origin and `down` to the client, each for as
long as one body takes. Flows follow the connection's rule of back-pressure: one stands still while bytes for its
destination wait in the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from actors.forwarding.context import Side
from actors.forwarding.net.splice import PipesExhausted, Progress
from actors.forwarding.protocols.commands import RelayToClient, RelayToOrigin

if TYPE_CHECKING:
    from actors.forwarding.connections.client_connection import Client


def relay_to_client(client: Client, command: RelayToClient) -> None:
    """Begin to move an answer's body."""
    near, far = _sides(client)
    meter = client.meter
    client.down = client.serving.flow(far, near, command.length, None if meter is None else meter.outward)
    client.loop.call_soon(client.go_on)


def relay_to_origin(client: Client, command: RelayToOrigin) -> None:
    """Begin to move a request's body."""
    near, far = _sides(client)
    meter = client.meter
    client.up = client.serving.flow(near, far, command.length, None if meter is None else meter.inward)
    client.loop.call_soon(client.go_on)


def _sides(client: Client) -> tuple[Side, Side]:
    origin = client.origin
    assert origin is not None
    return (client.sock, client.sock.fileno()), (origin.sock, origin.fd)


def flow_down(client: Client) -> None:
    """Move what can be moved to the client now."""
    flow = client.down
    if flow is None or client.out:
        return
    before = flow.moved
    try:
        progress = flow.pump()
    except PipesExhausted:
        client.serving.wait_for_pipes(client.go_on)
        return
    except OSError:
        session, now = client.session, client.loop.now
        client.perform(
            session.origin_disconnected(now) if flow.progress is Progress.EMPTY else session.client_disconnected(now)
        )
        return
    moved = flow.moved - before
    client.serving.moved(moved, from_client=False)
    client.bytes_out += moved
    if progress is Progress.YIELDED:
        client.loop.call_soon(client.go_on)
    elif progress is Progress.THROTTLED and flow.throttle is not None:
        flow.throttle.wait(client.go_on)
    ended = progress is Progress.ENDED
    if ended or progress is Progress.COMPLETE:
        client.down = None
    _tell_moved_down(client, moved, ended)


def _tell_moved_down(client: Client, moved: int, ended: bool) -> None:
    """An end after the origin broke is no good end of an answer: the break is told after what came before it."""
    broke = ended and client.origin_broke
    if moved or ended:
        client.perform(client.session.response_relayed(moved, client.loop.now, ended and not broke))
    if broke and not client.over:
        client.perform(client.session.origin_disconnected(client.loop.now))


def flow_up(client: Client) -> None:
    """Move what can be moved to the origin now."""
    flow = client.up
    if flow is None or client.origin_waits():
        return
    before = flow.moved
    try:
        progress = flow.pump()
    except PipesExhausted:
        client.serving.wait_for_pipes(client.go_on)
        return
    except OSError:
        flow.abandon()
        client.up = None
        _broke_upwards(client, at_client=flow.progress is Progress.EMPTY)
        return
    moved = flow.moved - before
    client.serving.moved(moved, from_client=True)
    client.bytes_in += moved
    if progress is Progress.YIELDED:
        client.loop.call_soon(client.go_on)
    elif progress is Progress.THROTTLED and flow.throttle is not None:
        flow.throttle.wait(client.go_on)
    ended = progress is Progress.ENDED
    if ended or progress is Progress.COMPLETE:
        client.up = None
        client.client_readable = True  # the flow has seen the edges
        client.loop.call_soon(client.go_on)
    if moved or ended:
        client.perform(client.session.request_relayed(moved, client.loop.now, ended))


def _broke_upwards(client: Client, at_client: bool) -> None:
    """One end of the flow up is gone. An origin may have answered before it closed: what flows down goes on."""
    if at_client:
        client.perform(client.session.client_disconnected(client.loop.now))
    elif client.origin is not None:
        client.origin_broken()


def end_flows(client: Client) -> None:
    """Let both flows go, wherever they are."""
    for flow in (client.up, client.down):
        if flow is not None:
            flow.abandon()
    client.up = client.down = None
