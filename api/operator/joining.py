"""This installation joins a fleet by a token (`api.cluster.joining`), or finishes what it has begun."""

from __future__ import annotations

import logging
from typing import Any

from api.engine.commit import Engine, open_engine
from api.operator.fleet_state import loaded
from api.store import StoreError
from config.files.paths import DataDir

log = logging.getLogger(__name__)


def finish_joining(data: DataDir) -> None:
    """Make an installation a node that has joined, if there is one; needs the database then.

    The caller holds the lock of the data directory. Raises `StoreError`.
    """
    if data.joining.exists():
        from api.cluster import joining

        joining.finish_joining(data)


def has_read(data: DataDir) -> bool:
    """Whether the state of the fleet is here, so that `finish_joining` takes no longer than to move files."""
    from api.cluster import joining

    return joining.has_read(data)


def begin_joining(
    engine: Engine | None,
    data: DataDir,
    listen: str,
    line: str,
    name: str = "",
    address: str = "",
    discard: bool = False,
) -> str:
    """Join the fleet of this token; the name of the node, which this is from its next start on.

    `engine` has what the installation has: unless by `discard` no proxies, no accounts and no users but the first one.
    Raises `OperatorError`.
    """
    with loaded():
        from api.cluster import joining
    found = [] if engine is None or discard else joining.what_is_there(engine)
    if found:
        raise joining.JoinRefused(
            f"this installation has {', '.join(found)}, which would be lost: --discard joins nevertheless;"
            " or make a backup first, `proxyfleet backup`"
        )
    return joining.ask_to_join(data, line, name, address, listen)


def join_while_serving(engine: Engine, listen: str, **asked: Any) -> str:
    """As `begin_joining`, and read the state of the fleet, so that the next start is short. Raises `OperatorError`."""
    joined = begin_joining(engine, engine.data, listen, **asked)
    from api.cluster import joining

    try:
        joining.read_ahead(engine.data)
    except StoreError as error:
        log.warning("the state of the fleet is read at the next start: %s", error)
    return joined


def join(data: DataDir, listen: str, line: str, name: str = "", address: str = "", discard: bool = False) -> str:
    """As `begin_joining`, to the end, while the product is stopped. The caller holds the lock."""
    if data.joining.exists():
        finish_joining(data)
    if data.fleet.exists() and not data.node.exists():
        with open_engine(data, "command_line", "cluster-join") as engine:
            joined = begin_joining(engine, data, listen, line, name, address, discard)
    else:
        joined = begin_joining(None, data, listen, line, name, address)
    finish_joining(data)
    return joined
