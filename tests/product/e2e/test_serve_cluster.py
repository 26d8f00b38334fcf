"""`scripts/serve --cluster`: a fleet on this machine, which ends with it."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import requests
import serve_cluster

from tests.kit.folders import ROOT
from tests.kit.ports import free_port
from tests.kit.postgresql import needs_postgresql
from tests.kit.postgresql_server import programs


def test_without_postgresql_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "12" / "bin").mkdir(parents=True)
    (tmp_path / "12" / "bin" / "postgres").touch()
    monkeypatch.setattr(serve_cluster, "programs", lambda: programs(tmp_path))
    with pytest.raises(AssertionError, match=r"apt-get install postgresql\."), serve_cluster.fleet(tmp_path, 1):
        pass


@needs_postgresql
def test_three_nodes_are_a_fleet_and_nothing_is_left_of_them() -> None:
    port = free_port()
    command = [sys.executable, "scripts/serve_cluster.py", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = ""
        try:
            while "Ctrl-C" not in said and (line := process.stdout.readline()):
                said += line
            password = re.findall(r"with the password (\S+)", said)[0]
            response = requests.get(f"http://127.0.0.2:{port}/api/v1/nodes", auth=("admin", password), timeout=30)
            found = response.json()["data"]["nodes"]
            assert {each["name"]: each["role"] for each in found} == serve_cluster.ROLES, response.text
        finally:
            process.send_signal(signal.SIGINT)
    assert process.returncode == 0
    folder = Path(re.findall(r"data are in (\S+),", said)[0])
    assert not folder.exists()
    assert not [each for each in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(each)]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it ended meanwhile
        return b""
