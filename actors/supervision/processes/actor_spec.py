"""How processes of an actor are made, and what all managed actors share for that: the settings by group, too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import getitem
from pathlib import Path
from socket import socket
from typing import Any

from actors.bus.loop import Loop
from actors.bus.mailbox import MailboxRouter
from actors.process import Boot
from actors.supervision.processes.live_state import LiveStateFiles
from actors.supervision.processes.spawner import Spawner


class ActorSettings:
    """The effective values; every start of a process reads them, and a change sends what has changed."""

    def __init__(self) -> None:
        self._groups: dict[str, Any] = {}

    def put(self, groups: Mapping[str, Any]) -> None:
        """These groups have these values from now on."""
        self._groups.update(groups)

    def of(self, names: Iterable[str]) -> dict[str, Any]:
        """The groups with these names; a part of a group has its name behind a dot."""
        return {name: reduce(getitem, name.split("."), self._groups) for name in names}


@dataclass(frozen=True, slots=True)
class WorkerId:
    """One of the processes that serve a proxy at the same time; `index` counts from 0."""

    proxy_id: str
    index: int = 0


NO_PROXY = WorkerId("")
"""That of an actor which belongs to no proxy."""


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
    worker: WorkerId = NO_PROXY
    params_of: Callable[[int], Mapping[str, Any]] = lambda _instance: NO_PARAMS
    on_end: Callable[[int], None] = lambda _instance: None


@dataclass(slots=True)
class SupervisionContext:
    """What all managed actors share. `new_boot(name, settings, params)` assigns the instance number.

    `state` is what processes count together; in the folder `packs` they leave something for those after them.
    """

    loop: Loop
    router: MailboxRouter
    spawner: Spawner
    new_boot: Callable[[str, dict[str, Any], dict[str, Any]], Boot]
    state: LiveStateFiles
    settings: ActorSettings = field(default_factory=ActorSettings)
    packs: Path = Path("/dev/null")
