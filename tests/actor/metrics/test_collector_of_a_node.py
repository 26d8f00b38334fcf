"""The collector's process of an installation that becomes a node of a fleet, and ceases to be one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import closing, suppress
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest

from actors.bus.messages.common import METRICS, QUOTA_OFFLINE
from actors.cluster.database import Database
from actors.cluster.identity import NodeIdentity
from actors.metrics.actor import MetricsActor
from actors.metrics.usage.account_usage import UsageLedger
from actors.metrics.usage.service import UsageService
from actors.process import Boot
from actors.supervision.processes.actor_specs import ActorClasses, ActorSettings, collector_specs
from actors.supervision.settings_updates import SupervisionConfig
from api.engine.commit import Engine
from api.store import Write
from config.files.paths import open_data_dir
from config.files.secret_box import secret_box_of
from config.settings.settings import Settings
from tests.kit.bus import Bench
from tests.kit.fleet_database import create_fleet
from tests.kit.postgresql import migrated_database, needs_postgresql
from tests.kit.settings import boot_settings
from tests.kit.wait import wait_until
from tests.unit.api.store.account_documents import account

pytestmark = needs_postgresql

_PROGRAM = """
import json, sys
import actors.metrics.actor as module
from actors.process import Boot, main
module.FLEET_PERIOD = 0.1
code = main("actors.metrics.actor:MetricsActor", Boot(**json.loads(sys.argv[1])), [], int(sys.argv[2]))
print(json.dumps(sorted(each for each in sys.modules if each.startswith(("psycopg", "actors.cluster")))))
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("becomes_node", "has"), [(True, "account"), (True, "usage"), (False, "account"), (True, "nothing")]
)
def test_it_reports_usage_while_there_is_the_file_of_a_node_and_else_loads_nothing_of_a_fleet(
    bench: Bench, tmp_path: Path, becomes_node: bool, has: str
) -> None:
    data = open_data_dir(tmp_path / "data")
    with closing(Engine(data, secret_box_of(data))) as engine, closing(UsageLedger(data.metrics)) as ledger:
        if has == "account":
            engine.commit([Write("accounts", "acc_1", account("acc_1", "ada"))])
        elif has == "usage":
            ledger.fleet_account("acc_1")
    if has == "nothing":
        NodeIdentity(uuid4(), "nod_1", "fra1", "full", "host=127.0.0.1 port=1").save(data, secret_box_of(data))
    boot = {
        "name": "metrics",
        "instance": time.time_ns(),
        "run_dir": str(bench.run_dir.path),
        "data_dir": str(data.path),
        "settings": boot_settings(metrics={"publish": ""}),
    }
    reading, writing = os.pipe()
    command = [sys.executable, "-c", _PROGRAM, json.dumps(boot), str(reading)]
    with (
        migrated_database() as dsn,
        subprocess.Popen(command, pass_fds=[reading], stdout=subprocess.PIPE, text=True) as process,
    ):
        os.close(reading)
        try:
            wait_until(lambda: any(data.metrics.glob("alerts*")), "the collector has its files", 60)
            if becomes_node and has != "nothing":
                fleet = uuid4()
                with closing(Database(dsn)) as opened:
                    create_fleet(opened, fleet, "nod_1")
                NodeIdentity(fleet, "nod_1", "fra1", "full", dsn).save(data, secret_box_of(data))
                wait_until(lambda: _ledgers(dsn) == [("nod_1",)], "the collector has reported", 60)
                data.node.unlink()
                wait_until(lambda: _connections(dsn) == 0, "the collector has left", 60)
        finally:
            os.close(writing)
            output, _ = process.communicate(timeout=60)
    assert bool(json.loads(output.splitlines()[-1])) == (becomes_node and has != "nothing")


def test_it_gets_what_accounts_may_use_without_the_database_and_no_secret_of_the_fleet(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies: list[str] = []
    monkeypatch.setattr(UsageService, "set_quota_offline", lambda _self, policy: policies.append(policy))
    collector = next(iter(collector_specs(ActorClasses(), SupervisionConfig.of(Settings(), ("127.0.0.1", 8080)))))
    settings = ActorSettings()
    settings.put(boot_settings(metrics={"publish": ""}, cluster={"quota_offline": "lease"}))
    given = settings.of(collector.settings)
    assert not any("dsn" in each for each in given.values())
    data = open_data_dir(tmp_path / "data")
    actor = MetricsActor(Boot(METRICS, 1, str(bench.run_dir.path), str(data.path), given), [])
    try:
        actor._apply({QUOTA_OFFLINE: "unlimited"})
    finally:
        actor.close()
    assert policies == ["lease", "unlimited"]


def _ledgers(dsn: str) -> list[tuple[str]]:
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT node FROM proxyfleet.usage_ledgers").fetchall()


def _connections(dsn: str) -> int:
    with suppress(psycopg.Error), psycopg.connect(dsn) as connection:
        statement = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return int(connection.execute(statement).fetchall()[0][0])
    return -1
