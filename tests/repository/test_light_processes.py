"""What processes must not load: each module costs memory and start time in every one of them."""

from __future__ import annotations

import os
import pickle
import pickletools
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from api.process import ApiStart
from api.store import open_store
from config.files.paths import open_data_dir
from config.model.proxies import ProxyCreate, new_record
from tests.kit.folders import ROOT
from tests.kit.tables import table

HEAVY = ("pydantic", "falcon", "requests", "tinydb", "rich", "typer", "zoneinfo", "dns", "h2", "maxminddb", "psycopg")


@table(
    "module",
    [
        "actors.forwarding.actor",
        "actors.logs.actor",
        "actors.metrics.actor",
        "actors.webhooks.actor",
        "actors.pools.actor",
    ],
)
def test_an_actor_starts_without_models_and_the_libraries_of_the_api(module: str) -> None:
    code = f"import sys, {module}; print([each for each in {HEAVY!r} if each in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert loaded.stdout.strip() == "[]"


def test_the_supervisor_loads_no_store_and_no_models_of_what_is_in_it() -> None:
    code = "import sys, api.cli.local.serve; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    loaded = set(ran.stdout.split())
    assert loaded & {"sqlite3", "falcon", "requests", "tinydb", "rich"} == set()
    assert {each for each in loaded if each.startswith(("api.store", "api.engine", "config.model.proxies"))} == set()


def test_what_the_supervisor_gets_of_the_store_has_no_class_of_the_api(tmp_path: Path) -> None:
    data = open_data_dir(tmp_path / "data")
    record = new_record(ProxyCreate(name="office", port=4001, protocol="http"), "prx_1", 1.0, 30)
    with closing(open_store(data)) as store:
        store.put("proxies", record.model_dump(mode="json"))
    read = ApiStart().read(str(data.path))

    assert [each.name for each in read[1]] == ["office"]
    assert [arg for _, arg, _ in pickletools.genops(pickle.dumps(read)) if str(arg).startswith("api.")] == []


def test_the_api_starts_without_what_few_of_its_operations_need() -> None:
    code = "import sys, api.process, api.app, api.operations; print(*sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert set(ran.stdout.split()) & {"requests", "urllib3", "authlib", "rich", "typer", "psycopg"} == set()


def test_a_fetch_of_a_list_loads_of_the_bus_only_what_it_uses() -> None:
    code = "import sys, actors.lists.fetching; print(*(each for each in sys.modules if each.startswith('actors.bus.')))"
    loaded = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    values = {"actors.bus.messages", "actors.bus.messages.specs"}
    assert set(loaded.stdout.split()) == {"actors.bus.codec", *values}


@pytest.mark.parametrize(
    "line", ["proxies list", "proxies show office", "proxies update office --set tags=[] --add-tag x", "version"]
)
def test_a_call_of_the_command_line_loads_its_own_commands_and_no_models(line: str, tmp_path: Path) -> None:
    code = f"""
import sys, supervisor
sys.argv = ["proxyfleet", *{line.split()!r}]
try:
    supervisor.main()
finally:
    print("loaded", *(each for each in sys.modules if each.split(".")[0] in {HEAVY!r} or each.startswith("api.")))
"""
    with socket.create_server(("127.0.0.1", 0)) as closing:
        address = f"http://127.0.0.1:{closing.getsockname()[1]}"
    env = {**os.environ, "HOME": str(tmp_path), "PROXYFLEET_URL": address}
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, "Traceback" in ran.stderr) == (0 if line == "version" else 3, False), ran.stderr
    loaded = ran.stdout.splitlines()[-1].split()[1:]
    remote = {each for each in loaded if each.startswith(("api.cli.remote.", "api.cli.local."))}
    assert {each.split(".")[0] for each in loaded} <= {"api", "typer", "requests"}
    assert {each for each in loaded if each.startswith("api.")} <= {each for each in loaded if ".cli" in each} | {"api"}
    assert remote == (set() if line == "version" else {"api.cli.remote.proxies", "api.cli.remote.proxy_tests"})
