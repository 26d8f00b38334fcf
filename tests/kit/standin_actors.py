"""Small actors in the place of the real ones, and a supervisor that runs them (`python -m tests.kit.standin_actors`).

`Echo` stands for a forwarding actor: it writes one line to every connection, `<pid> <instance> <revision>`, and
keeps the connection open until the client closes it or its drain ends. To `objects` it responds with those that it
has. `Asker` stands for the API: it passes the
messages that a test sends to a plain socket on to the bus, and returns the replies. Silence counts as death after two
seconds.
"""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from actors.bus.codec import Envelope, decode, encode
from actors.bus.mailbox import Reply
from actors.bus.messages.common import Done
from actors.bus.messages.forwarding import Configure
from actors.bus.messages.metrics import Counters, ProxyStats
from actors.bus.messages.specs import ProxySpec
from actors.counters import NAMES, ZEROS
from actors.process import Actor, Boot, set_up_logging


class Quiet(Actor):
    """Says hello, does nothing."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self.ready()


class Echo(Actor):
    """See the module. It stops its loop for good when a client says `hang`."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self._configured: Configure | None = None
        self._clients: dict[int, socket.socket] = {}
        self._deadline = float("inf")
        self.ready()

    def receive(self, sender: str, message: Any, reply: Reply) -> None:
        if isinstance(message, Configure):
            if self._configured is None:
                self.loop.watch(self.sockets[0].fileno(), select.EPOLLIN, self._accept)
            before, self._configured = self._configured, message
            if message.changes and before is not None:
                objects = {key: packed for key, packed in {**before.objects, **message.objects}.items() if packed}
                self._configured = replace(message, objects=objects)
            reply(Done())
        else:
            super().receive(sender, message, reply)

    def drain(self, seconds: float) -> None:
        self.loop.unwatch(self.sockets[0].fileno())
        self.sockets[0].close()
        if not self._clients or seconds == 0:
            self.finish()
        self.loop.call_later(seconds, self.finish)

    def _accept(self, _mask: int) -> None:
        try:
            client, _address = self.sockets[0].accept()
        except OSError:
            return
        assert self._configured is not None
        self._clients[client.fileno()] = client
        client.sendall(f"{os.getpid()} {self.boot.instance} {self._configured.spec.revision}\n".encode())
        self.loop.watch(client.fileno(), select.EPOLLIN, lambda _mask: self._said(client))

    def _said(self, client: socket.socket) -> None:
        said = client.recv(100)
        if said.strip() == b"hang":
            time.sleep(600)
        if said.strip() == b"objects":
            assert self._configured is not None
            objects = {key: packed.decode() for key, packed in self._configured.objects.items()}
            said = json.dumps(objects).encode() + b"\n"
        if said:
            client.sendall(said)
            return
        self.loop.unwatch(client.fileno())
        del self._clients[client.fileno()]
        client.close()
        if self._stopping and not self._clients:
            self.finish()


class Asker(Actor):
    """See the module. One request: `[to, envelope]` as JSON of hex; the reply is an envelope in hex."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        super().__init__(boot, sockets)
        self.loop.watch(sockets[0].fileno(), select.EPOLLIN, self._accept)
        self.ready()

    def _accept(self, _mask: int) -> None:
        client, _address = self.sockets[0].accept()
        client.settimeout(5)
        to, asked = json.loads(client.makefile("r").readline())
        message = decode(bytes.fromhex(asked)).message

        def give(reply: Any) -> None:
            client.sendall(encode(Envelope(reply)).hex().encode() + b"\n")
            client.close()

        self.mailbox.ask(to, message, give)


class StubbornAtStart(Actor):
    """Ends with an error whenever it is started."""

    def __init__(self, boot: Boot, sockets: list[socket.socket]) -> None:
        raise SystemExit(7)


STAND_INS = {
    "api": "tests.kit.standin_actors:Asker",
    "forwarding": "tests.kit.standin_actors:Echo",
    "metrics": "tests.kit.standin_actors:Quiet",
    "logs": "tests.kit.standin_actors:Quiet",
    "webhooks": "tests.kit.standin_actors:Quiet",
    "resolver": "tests.kit.standin_actors:Quiet",
    "pools": "tests.kit.standin_actors:Quiet",
}
"""By the fields of `ActorClasses`."""


def counters(proxy_id: str, instance: int, requests: int, **more: Any) -> Counters:
    """Counters of a process with so many requests."""
    return Counters(proxy_id, instance, **_apart({"requests": requests, **more}, dict))


def stats_of(**fields: Any) -> ProxyStats:
    """Totals with these counters and other fields, by name."""
    return ProxyStats(**_apart(fields, lambda values: tuple(values.values())))


def _apart(fields: dict[str, Any], form: Callable[[dict[str, float]], Any]) -> dict[str, Any]:
    values = {name: fields.pop(name, zero) for name, zero in zip(NAMES, ZEROS, strict=True)}
    return {**fields, "values": form(values)}


def spec(proxy_id: str, port: int, **more: Any) -> ProxySpec:
    """An active http proxy on loopback."""
    fields: dict[str, Any] = {
        "id": proxy_id,
        "name": f"name of {proxy_id}",
        "host": "127.0.0.1",
        "port": port,
        "protocol": "http",
        "active": True,
        "revision": 1,
        "timeout": 30.0,
        "keep_alive": True,
        "max_connections": 1000,
        "auth_username": None,
        "auth_hash": None,
    }
    return ProxySpec(**{**fields, **more})


def main() -> None:
    """Arguments: directory, port of the `Asker`, drain time-out, and (as JSON) entries that are others."""
    # Not above: each stand-in imports this module, and would take a quarter of a second of a core for these.
    from actors.supervision.listeners.bind import listen
    from actors.supervision.processes import instance, spawner
    from actors.supervision.processes.actor_specs import ActorClasses
    from actors.supervision.supervisor import RuntimeResources, SupervisorProcess
    from config.files.paths import lock, open_data_dir, open_run_dir
    from config.settings.loading import load

    directory, port, drain, others = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
    instance.SILENCE_MAX = 2.0
    spawner.ZYGOTE_SILENCE = 12.0
    set_up_logging("info", "text")
    data, run = open_data_dir(directory / "data"), open_run_dir(directory / "run")
    resources = RuntimeResources(data, run, (lock(data.lock, "data"), lock(run.lock, "run")), listen("127.0.0.1", port))
    settings = load(None, {"server": {"drain_timeout": drain, "port": port}})
    service = SupervisorProcess(
        settings, resources, load, lambda: print("ready"), ActorClasses(**{**STAND_INS, **others})
    )
    sys.exit(service.run(()))


if __name__ == "__main__":
    main()
