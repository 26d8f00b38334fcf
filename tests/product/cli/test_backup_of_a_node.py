"""Backups of nodes of a fleet: they are restored as machines that stand alone, and never over a node."""

from __future__ import annotations

import json
import shutil
from contextlib import closing
from pathlib import Path

from api.backup.archive import open_archive
from api.engine.commit import open_engine
from api.store import open_store
from config.files.paths import DataDir
from config.model.nodes import NodeRecord, NodesOfProxy
from config.model.proxies import blank_record
from tests.product.cli.sites import Site, members_of

OURS, OTHER = "nod_aaaaaaaaaaaaaaaa", "nod_bbbbbbbbbbbbbbbb"
PRIVATE = "private key of this node"


def become_node(data: DataDir) -> None:
    """What a node has on its disk: its identity, its private key, and a replica with all that the fleet shares."""
    data.cluster.mkdir(mode=0o700)
    data.node.write_text(json.dumps({"id": OURS, "dsn": "sealed"}))
    for name in ("founding.json", "node.pem", "lost-2026-01-01T000000Z.json"):
        (data.cluster / name).write_text(PRIVATE)
    with open_engine(data, "command_line", "a-change") as engine:
        for each, name in ((OURS, "fra1"), (OTHER, "fra2")):
            node = NodeRecord(id=each, name=name, addresses={"public": f"192.0.2.{name[-1]}"}, created_at=0.0)
            engine.put("nodes", node.model_dump(mode="json"))
            engine.put("settings", {"id": each, "logging": {"level": "debug" if each == OURS else "error"}})
        for name, names in (("here", "fra1"), ("there", "fra2")):
            proxy = blank_record(f"prx_{names}", name, "{address:public}", 3128, "http", 0.0, 30)
            proxy = proxy.model_copy(update={"nodes": NodesOfProxy(names=[names])})
            engine.put("proxies", proxy.model_dump(mode="json"))
    with closing(open_store(data)) as store, store.file.transaction() as database:
        database.execute("REPLACE INTO stamps SELECT revision, 'b0f7c9c4-58ab-4a7c-8d5c-6a4f2d6b1f4e' FROM steps")


def test_a_backup_has_nothing_that_makes_another_machine_the_node(site: Site) -> None:
    become_node(site.data)
    file = site.backup()
    assert not [name for name in members_of(file) if "cluster" in name]
    with open_archive(file) as archive:
        archive.extract(made := _new(site.folder / "extracted"))
        assert archive.manifest.node == OURS
    assert PRIVATE.encode() not in b"".join(each.read_bytes() for each in made.rglob("*") if each.is_file())


def test_a_backup_of_a_node_is_restored_as_a_machine_that_stands_alone(site: Site) -> None:
    become_node(site.data)
    file = site.backup()
    other = Site(site.folder, site.folder / "other")
    planned = other.restore(file, "--dry-run", "-o", "json")
    assert "nodes" not in {each["kind"] for each in json.loads(planned.out)["changes"]}
    done = other.restore(file, "--yes")
    assert done.status == 0, done.err
    assert not other.data.cluster.exists()
    with open_engine(other.data, "command_line", "test") as engine:
        assert engine.stamped()[1] is None
        assert engine.every("nodes") == []
        found = {each.body["name"]: each.body for each in engine.every("proxies")}
        assert {name: (each["host"], each["status"]) for name, each in found.items() if "prx_fra" in each["id"]} == {
            "here": ("192.0.2.1", "active"),
            "there": ("192.0.2.1", "inactive"),
        }
        assert all(each["nodes"]["all"] for each in found.values())
        assert {each.id: each.body["logging"]["level"] for each in engine.every("settings")} == {"settings": "debug"}


def test_a_node_is_not_replaced_by_a_restore_unless_it_has_left(site: Site) -> None:
    file = site.backup()
    become_node(site.data)
    before = sorted(site.data.path.rglob("*"))
    for more in ("--yes", "--dry-run"):
        refused = site.restore(file, more)
        assert (refused.status, "proxyfleet cluster leave" in refused.err) == (1, True), refused.err
    assert sorted(site.data.path.rglob("*")) == before
    site.data.node.unlink()
    assert site.restore(file, "--yes").status == 0
    assert site.names() == ["chained", "plain"]


def test_an_identity_that_cannot_be_read_is_no_backup_of_a_machine_that_stands_alone(site: Site) -> None:
    become_node(site.data)
    site.data.node.write_text("{")
    refused = site.shell("backup", str(site.folder / "b.tar.gz"), "--without-keys")
    assert (refused.status, "node.json: can't be read" in refused.err) == (1, True), refused.err


def _new(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    return folder
