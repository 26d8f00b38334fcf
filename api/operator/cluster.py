"""This installation as a node of a fleet: the one place that loads what only a fleet needs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from actors.bus.mailbox import Reply
from actors.bus.messages.cluster import (
    ClusterRequest,
    FleetFounded,
    FleetJoined,
    FleetLeft,
    FleetMoved,
    FleetRekeyed,
    FoundFleet,
    JoinFleet,
    LeaveFleet,
    MoveFleet,
    RekeyFleet,
)
from actors.bus.messages.common import Failed
from api.audit.audit_context import on_behalf_of
from api.bus_bridge import LoopBridge
from api.engine.commit import Engine, open_engine
from api.operator.fleet_state import NO_NODE, loaded
from api.operator.joining import join_while_serving
from api.store import LedgerError, StoreError
from config import OperatorError
from config.files.paths import DataDir
from config.files.secret_box import SecretBoxError, secret_box_of

if TYPE_CHECKING:  # in a fleet alone
    from api.cluster.fleet_node import FleetNode

log = logging.getLogger(__name__)

_MOVE = "the move of the fleet's database"
"""Why the API starts again."""
BY_FORCE = "--force goes on alone without all that"


def node_of(data: DataDir) -> FleetNode | None:
    """What this installation is in its fleet; None when it stands alone. Needs no database. Raises `StoreError`."""
    if not data.node.exists():
        return None
    with loaded():
        from actors.cluster.errors import DatabaseError
        from actors.cluster.identity import identity_of
        from api.cluster.fleet_node import FleetNode
    try:
        seal = secret_box_of(data)
        identity = identity_of(data, seal)
        return None if identity is None else FleetNode(identity, seal=seal)
    except (DatabaseError, SecretBoxError) as error:
        raise StoreError(str(error)) from error


@contextmanager
def offline_engine(data: DataDir, operation: str) -> Iterator[Engine]:
    """The engine for a change by the command line without the API; in a fleet it is a change of the fleet.

    The caller holds the lock of the data directory. Raises `StoreError`.
    """
    node = node_of(data)
    try:
        with open_engine(data, "command_line", operation, None if node is None else node.ledger) as engine:
            if node is not None:
                node.opened(engine)
            yield engine
    finally:
        if node is not None:
            node.close()


def found(engine: Engine, asked: FoundFleet, listen: str) -> FleetNode:
    """Make this installation the first node of a fleet, reached at `listen`. Raises `OperatorError`."""
    with loaded():
        from api.cluster.founding import found_fleet
    return found_fleet(engine, asked, listen)


def leave(node: FleetNode | None, force: bool) -> FleetLeft:
    """Go on alone. Raises `OperatorError`."""
    from api.cluster.founding import leave_fleet

    if node is None:
        raise StoreError(NO_NODE)
    with _unless_cut_off():
        return FleetLeft(dict(leave_fleet(node, force)))


def move(engine: Engine, node: FleetNode | None, asked: MoveFleet) -> FleetMoved:
    """Give the fleet another database, for the next start of this node. Raises `OperatorError`."""
    if node is None:
        raise StoreError(NO_NODE)
    from api.cluster.moving import move_fleet

    try:
        return FleetMoved(move_fleet(engine, secret_box_of(engine.data), node.identity, asked))
    except OSError as error:
        raise StoreError(str(error)) from error


def move_offline(data: DataDir, asked: MoveFleet) -> FleetMoved:
    """As `move`, while the product is stopped. The caller holds the lock."""
    node = node_of(data)
    if node is None:
        raise StoreError(NO_NODE)
    try:
        with open_engine(data, "command_line", "cluster-move", node.ledger, catches_up=False) as engine:
            return move(engine, node, asked)
    finally:
        node.close()


@contextmanager
def _unless_cut_off() -> Iterator[None]:
    try:
        yield
    except LedgerError as error:
        raise StoreError(f"{error}; {BY_FORCE}") from error


def found_offline(data: DataDir, asked: FoundFleet, listen: str) -> FleetFounded:
    """As `found`, while the product is stopped. The caller holds the lock."""
    with open_engine(data, "command_line", "cluster-init") as engine:
        node = found(engine, asked, listen)
        node.close()
        return _founded(node)


def leave_offline(data: DataDir, force: bool) -> FleetLeft:
    """As `leave`, while the product is stopped. The caller holds the lock."""
    node = node_of(data)
    ledger = None if node is None or force else node.ledger
    with _unless_cut_off(), open_engine(data, "command_line", "cluster-leave", ledger) as engine:
        if node is not None:
            node.opened(engine)
        return leave(node, force)


def _founded(node: FleetNode) -> FleetFounded:
    return FleetFounded(str(node.identity.fleet), node.node_id, node.identity.name)


class NodeProcess(Protocol):
    """The process of the API, which is that of a node, or becomes or ends to be one."""

    node: FleetNode | None

    def become(self, node: FleetNode | None) -> None:
        """From now on this is that node, or stands alone; one that it was is closed."""
        ...

    def listen(self) -> str:
        """What `cluster.listen` is."""
        ...

    def joined(self) -> None:
        """Be the node as which this installation has joined."""
        ...

    def terminate(self, why: str) -> None:
        """End soon: the next process is the node that this installation has become."""
        ...


class ClusterHandler:
    """What the command line asks of the running API. Used by its loop thread."""

    def __init__(self, engine: Engine, bridge: LoopBridge, process: NodeProcess) -> None:
        self._engine, self._bridge, self._process = engine, bridge, process
        self._one_at_a_time = threading.Lock()

    def receive(self, message: Any, reply: Reply) -> bool:
        """Handle a message of the command line; False for any other message."""
        if not isinstance(message, ClusterRequest):
            return False
        threading.Thread(target=self._handle, args=(message, reply), name="cluster", daemon=True).start()
        return True

    def moved(self, sealed: str) -> None:
        """The former database of the fleet has said so, and what this node needs to follow. Used by any thread."""
        threading.Thread(target=self._follow, args=(sealed,), name="cluster", daemon=True).start()

    def _follow(self, sealed: str) -> None:
        from api.cluster.moving import take_move

        node, data = self._process.node, self._engine.data
        if node is None or not self._one_at_a_time.acquire(blocking=False):
            return
        try:
            take_move(data, secret_box_of(data), node.identity, sealed)
        except (OperatorError, OSError, ValueError, KeyError) as error:
            log.error("the fleet has another database, and this node can't follow it: %s", error)
            self._one_at_a_time.release()
        else:  # nothing else any more until the end
            self._bridge.call(lambda: self._process.terminate(_MOVE))

    def _handle(self, message: ClusterRequest, reply: Reply) -> None:
        outcome = self._outcome(message)
        self._bridge.call(lambda: reply(outcome))
        if isinstance(outcome, FleetJoined):
            self._bridge.call(self._process.joined)
        elif isinstance(outcome, FleetMoved):
            self._bridge.call(lambda: self._process.terminate(_MOVE))

    def _outcome(
        self, message: ClusterRequest
    ) -> FleetFounded | FleetJoined | FleetRekeyed | FleetLeft | FleetMoved | Failed:
        if not self._one_at_a_time.acquire(blocking=False):
            return Failed("the fleet is being made, left, moved, or given a new key at this moment")
        try:
            if isinstance(message, JoinFleet):
                return FleetJoined(join_while_serving(self._engine, self._process.listen(), **asdict(message)))
            if isinstance(message, RekeyFleet):
                return self._rekeyed()
            if isinstance(message, MoveFleet):
                return move(self._engine, self._process.node, message)
            return self._founded(message) if isinstance(message, FoundFleet) else self._left(message)
        except OperatorError as error:
            return Failed(str(error))
        except Exception as error:  # a command waits for the reply
            log.exception("what the command line has asked of the fleet was not done")
            return Failed(f"{type(error).__name__}: see the log")
        finally:
            self._one_at_a_time.release()

    def _founded(self, message: FoundFleet) -> FleetFounded:
        with on_behalf_of("command_line", "cluster-init"):
            node = found(self._engine, message, self._process.listen())
        self._process.become(node)
        log.warning("this installation is the first node of the fleet %s", node.identity.fleet)
        return _founded(node)

    def _rekeyed(self) -> FleetRekeyed:
        node = self._process.node
        if node is None:
            raise StoreError(NO_NODE)
        with on_behalf_of("command_line", "cluster-rekey"):
            done = node.rekey()
        log.warning("the fleet has a new key, %s", done.mark)
        return FleetRekeyed(done.mark, tuple(done.nodes), tuple(done.waiting))

    def _left(self, message: LeaveFleet) -> FleetLeft:
        with on_behalf_of("command_line", "cluster-leave"):
            left = leave(self._process.node, message.force)
        self._process.become(None)
        log.warning("this installation is no node of a fleet any more")
        return left
