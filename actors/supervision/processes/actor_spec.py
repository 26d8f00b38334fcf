"""How processes of an actor are made, and what all managed actors share for that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from socket import socket
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter
from actors.process import Boot
from actors.supervision.actor_settings import ActorSettings
from actors.supervision.processes.columns import WorkerColumns
from actors.supervision.processes.spawner import Spawner
from actors.supervision.processes.worker_id import NO_PROXY, Worker

NO_PARAMS: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class ActorSpec:
    """How processes of an actor are made.

    `settings` names the groups of the settings that it gets; `sockets` returns the listening sockets at a start.
    `worker` is which process of a proxy it is; `params_of` returns further `params` of an instance, and `on_end` is
    called with each instance that has ended or could not be made.
    """

    name: str
    actor_class: str
    settings: tuple[str, ...] = ()
    params: Mapping[str, Any] = field(default_factory=dict)
    sockets: Callable[[], list[socket]] = list
    worker: Worker = NO_PROXY
    params_of: Callable[[int], Mapping[str, Any]] = lambda _instance: NO_PARAMS
    on_end: Callable[[int], None] = lambda _instance: None


@dataclass(slots=True)
class SupervisionContext:
    """What all managed actors share. `new_boot(name, settings, params)` assigns the instance number.

    In `columns` workers of a proxy count; in the folder `packs` processes leave something for those after them.
    """

    loop: Loop
    router: MailboxRouter
    spawner: Spawner
    new_boot: Callable[[str, dict[str, Any], dict[str, Any]], Boot]
    columns: WorkerColumns
    settings: ActorSettings = field(default_factory=ActorSettings)
    packs: Path = Path("/dev/null")
