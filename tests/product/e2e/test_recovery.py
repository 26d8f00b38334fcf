"""Real nodes after their database was moved, and after it was restored to an earlier state."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tests.kit.cluster import Nodes, command
from tests.kit.postgresql import needs_postgresql
from tests.kit.product import Product
from tests.kit.wait import wait_until

pytestmark = needs_postgresql


def made(product: Product, name: str) -> bool:
    response = product.api("POST", "/lists", {"name": name, "kind": "domains", "entries": ["example.com"]})
    return response.status_code in (201, 409)  # made, maybe by a try whose response said that it could not be known


def names(product: Product) -> set[str]:
    return {each["name"] for each in product.data("GET", "/lists")["lists"]}


def copied(nodes: Nodes, name: str) -> str:
    """A new database with a dump of the fleet's: its DSN."""
    nodes.server.execute(f"CREATE DATABASE {name}")
    dump = ["pg_dump", "--schema=proxyfleet", "--no-owner", "--no-privileges", "--dbname", nodes.dsn]
    text = subprocess.run(dump, capture_output=True, check=True).stdout
    subprocess.run(["psql", "-q", "--dbname", nodes.server.dsn(name)], input=text, capture_output=True, check=True)
    return nodes.server.dsn(name)


def restored(nodes: Nodes, name: str, file: Path) -> None:
    """As `docs/how-to/restore-the-database.md` says."""
    nodes.server.execute("DROP SCHEMA proxyfleet CASCADE", name)
    subprocess.run(["pg_restore", "--dbname", nodes.server.dsn(name), file], check=True)


def test_nodes_follow_a_moved_database_and_what_a_restored_one_lacks_is_made_again(tmp_path: Path) -> None:
    with Nodes() as nodes:
        first, second = nodes.product(), nodes.product()
        nodes.init(first)
        line = first.data("POST", "/nodes/tokens", {"name": "second"})["line"]
        assert command(second, "join", line, "--address", nodes.addresses[second])[0] == 0
        other = copied(nodes, "other")
        named = f"127.0.0.1:{nodes.server.port}/other"
        wait_until(lambda: made(first, "behind"), "it is made")
        status, said = command(first, "init", "--move", other)
        assert (status, json.loads(said)) == (0, {"database": named})
        for each in (first, second):
            wait_until(lambda p=each: json.loads(command(p, "status")[1])["database"] == named, "it follows")
        connected = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres'"
        wait_until(lambda: nodes.server.execute(connected) == [(1,)], "nodes have left it")
        wait_until(lambda: made(first, "moved"), "changes go on")
        second.forget_token()
        wait_until(lambda: {"behind", "moved"} <= names(second), "it follows")
        file = tmp_path / "dump"
        subprocess.run(["pg_dump", "-Fc", "-f", file, "--dbname", other], check=True)

        lost = {"lost-at-first", "lost-at-second"}
        for each, name in zip((first, second), sorted(lost), strict=True):
            wait_until(lambda p=each, n=name: made(p, n), "it is made")
        restored(nodes, "other", file)
        wait_until(lambda: names(first) == {"behind", "moved"}, "it is what the database has", 30)
        status, said = command(first, "show-lost")
        found = json.loads(said)
        assert (status, {each["name"] for each in found["documents"]}) == (0, lost)
        assert {each["node"] for each in found["revisions"]} == {"first", "second"}
        done = first.api("POST", f"/lost-changes/{found['id']}/reapply")
        assert done.status_code == 200, done.text
        assert names(first) == lost | {"behind", "moved"}
