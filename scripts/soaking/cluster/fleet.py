"""The fleet under soak: its nodes and their database, with relays between them, by which the network can fail."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from contextlib import suppress
from typing import Any

import psycopg
import requests

from soaking.cluster.clock import NodeClock
from soaking.installation import ACTORS, Installation
from tests.kit.cluster import Nodes
from tests.kit.gated_relay import GatedRelay, role_of
from tests.kit.ports import free_port
from tests.kit.postgresql_server import Server
from tests.kit.wait import wait_until

ROLES = {"one": "full", "two": "full", "edge": "edge"}
HOSTS = {name: f"127.0.0.{number}" for number, name in enumerate(ROLES, 1)}
"""Where the proxies of each node listen."""
DATABASE = "fleet"
HEALTHY = ("running", "degraded", "sleeping")


class SoakedNode(Installation):
    """One node. Other nodes reach it by `link`."""

    def __init__(self, name: str, role: str) -> None:
        internal = free_port()
        super().__init__(name, PROXYFLEET_CLUSTER__LISTEN=f"127.0.0.1:{internal}")
        self.role = role
        self.id = ""
        self.link = GatedRelay(internal)
        self.clock = NodeClock(self.directory)
        self._env.update(self.clock.environment())

    @property
    def role_name(self) -> str:
        """Of its role in the database."""
        return f"pf_{self.id}"

    @property
    def is_full(self) -> bool:
        return self.role == "full"

    def restart_if_ended(self) -> None:
        """As systemd does: a start without a replica gives up when the database doesn't come."""
        if self.process is not None and self.process.poll() is not None:
            self.start(wait=False)
            self.forget_token()

    def everything_runs(self) -> bool:
        """True if all of this node runs that should."""
        try:
            if not self.is_full:
                response = self.session.get(f"{self.base_url}/health", timeout=10)
                return response.ok and self.by_kind().keys() >= ACTORS - {"pools"}
            proxies = self.proxies("status=active")
        except (AssertionError, OSError, requests.RequestException):
            return False
        states = [each["state"] for proxy in proxies for each in proxy["runtime"]["nodes"] if each["node"] == self.name]
        return self.by_kind().keys() >= ACTORS - {"pools"} and all(each in HEALTHY for each in states)

    def replica(self, query: str) -> list[tuple[Any, ...]]:
        """What the file of this node has."""
        with sqlite3.connect(f"file:{self.data_dir}/fleet.sqlite?mode=ro", uri=True, timeout=30) as database:
            return database.execute(query).fetchall()

    def lost(self) -> list[dict[str, Any]]:
        """What it says of each restore of the database."""
        return [json.loads(each.read_text()) for each in (self.data_dir / "cluster").glob("lost-*.json")]

    def discard(self) -> None:
        with suppress(OSError):
            self.link.__exit__()
        super().discard()


class SoakedFleet(Nodes):
    """All of it; it ends with the block."""

    def __init__(self) -> None:
        super().__init__(Server(durable=True))
        self.server.execute(f"CREATE DATABASE {DATABASE}")
        self.relay = GatedRelay(self.server.port, role_of)
        self._stack.callback(self.relay.__exit__)
        parts = {"host": "127.0.0.1", "port": self.relay.port, "sslmode": "disable", "gssencmode": "disable"}
        self.dsn = psycopg.conninfo.make_conninfo(self.server.dsn(DATABASE), **parts)  # type: ignore[arg-type]
        self.nodes = [SoakedNode(name, role) for name, role in ROLES.items()]
        for each in self.nodes:
            self._stack.callback(each.discard)
            self.addresses[each] = f"127.0.0.1:{each.link.port}"

    @property
    def full(self) -> list[SoakedNode]:
        return [each for each in self.nodes if each.is_full]

    def begin(self) -> None:
        """Start the nodes, and make a fleet of them."""
        for each in self.nodes:
            each.start(wait=False)
        for each in self.nodes:
            each.wait_healthy()
        first, *others = self.nodes
        self.init(first, first.name)
        for each in others:
            self.join(each, first, each.name, each.role)
        wait_until(lambda: set(self.states().values()) == {"up"}, "all nodes are up", 120)
        for each in self.nodes:
            document = first.data("GET", f"/nodes/{each.name}")["node"]
            each.id = document["id"]
            addresses = {**document["addresses"], "public": HOSTS[each.name]}
            first.data("PATCH", f"/nodes/{each.name}", {"addresses": addresses})

    def states(self) -> dict[str, str]:
        """Of all nodes, as the first one knows them."""
        return {each["name"]: each["state"] for each in self.known()}

    def known(self) -> list[dict[str, Any]]:
        """The nodes as the first one has them."""
        return list(self.nodes[0].data("GET", "/nodes")["nodes"])

    def is_whole(self) -> bool:
        """True if all nodes run, are connected, and serve the last commit. Starts those that have ended."""
        for each in self.nodes:
            each.restart_if_ended()
        try:
            known = self.known()
            stale = [each for each in self.full if "X-Config-Stale" in each.api("GET", "/plans", timeout=10).headers]
        except (AssertionError, OSError, requests.RequestException):
            return False
        return (
            not stale
            and all(each["state"] == "up" and (each["database"] or {}).get("connected") for each in known)
            and all((each["behind_seconds"] or 0) < 5 for each in known)
            and all(each.everything_runs() for each in self.nodes)
        )

    def execute(self, statement: str, database: str = DATABASE) -> list[tuple[Any, ...]]:
        """As an operator with `psql`, whatever becomes of the relay."""
        return self.server.execute(statement, database)

    def alone(self, *statements: str) -> None:
        """Do what needs a database without connections."""
        with psycopg.connect(self.server.dsn(), autocommit=True) as connection:
            for each in statements:
                wait_until(lambda each=each: _alone(connection, each), each, 60)  # type: ignore[misc]

    def run(self, program: str, *arguments: str, text: str | None = None) -> str:
        """A program of PostgreSQL: what it prints."""
        done = subprocess.run([program, *arguments], input=text, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout


def _alone(connection: psycopg.Connection[Any], statement: str) -> bool:
    """Whether it was done: a connection that was ended may be there a while longer, and another one come."""
    connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname <> 'postgres'")
    try:
        connection.execute(statement.encode())
    except psycopg.errors.ObjectInUse:
        return False
    return True
