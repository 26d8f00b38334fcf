"""What `proxyfleet cluster status` says of a node when its database does not respond: at once, and what it knows."""

from __future__ import annotations

import socket
import time
from contextlib import closing, nullcontext
from pathlib import Path
from uuid import uuid4

import pytest

from actors.cluster.identity import NodeIdentity
from api.cli.local import cluster_status
from api.cli.local.cluster_status import status
from api.cli.terminal import Output
from api.engine.commit import Engine
from api.operator.fleet_state import AT_LEAST, BEHIND, PATIENCE, FleetState, _problem, patience, runs_for, state_of
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import secret_box_of
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import proxy


@pytest.fixture
def node(tmp_path: Path) -> DataDir:
    """A node at revision 1, whose database takes connections and never responds."""
    data = open_data_dir(tmp_path / "data")
    seal = secret_box_of(data)
    with closing(Engine(data, seal)) as engine:
        engine.commit(proxy())
    return data


def test_a_database_that_hangs_is_named_in_time_with_what_the_node_knows(
    node: DataDir, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as hanging:
        place = "{}:{}/pf".format(*hanging.getsockname())
        identity = NodeIdentity(uuid4(), "nod_0123456789abcdef", "here", "full", f"postgresql://pf:x@{place}", "")
        node.cluster.mkdir(exist_ok=True)
        identity.save(node, secret_box_of(node))
        began = time.monotonic()
        found = state_of(node, 0.2)
        assert time.monotonic() - began < 1.9, "connecting may take longer"
        assert found is not None
        assert (found.connected, found.error) == (False, f"{place}: does not respond, waited for 0.2 s")
        assert (found.name, found.revision, found.head) == ("here", 1, None)
        with pytest.raises(SystemExit, match="3"):
            status(Output(), None, node.path)
    printed = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert printed["database"].startswith(f"cut off: {place}: does not respond")
    assert (printed["revision"], printed["behind"]) == ("1", "-")


@table(
    "missing, stands_behind, says",
    [(None, BEHIND, None), (None, BEHIND + 0.1, "start it"), ("key9", 0.0, "key9 is missing in keys")],
)
def test_an_operator_must_act_where_a_key_is_missing_or_a_node_stands(
    missing: str | None, stands_behind: float, says: str | None
) -> None:
    found = _problem(missing, Path("keys"), stands_behind)
    assert (found is None) is (says is None)
    assert (says or "") in (found or "")


@table("behind, problem, ends", [(3600.0, None, None), (0.0, "start it", 4)])
def test_only_where_an_operator_must_act_it_ends_with_4(
    node: DataDir, monkeypatch: pytest.MonkeyPatch, behind: float, problem: str | None, ends: int | None
) -> None:
    state = FleetState("f", "nod_1", "here", "full", "db", True, None, 1, 1, behind, None, {}, 0, problem)
    monkeypatch.setattr(cluster_status, "state_of", lambda *_: state)
    with nullcontext() if ends is None else pytest.raises(SystemExit, match=str(ends)):
        status(Output(), None, node.path)


@table("runs_for, seconds", [(0.0, PATIENCE), (0.7, PATIENCE - 0.7), (1.5, AT_LEAST), (90.0, AT_LEAST)])
def test_the_database_has_what_is_left_of_two_seconds_since_the_command_began(runs_for: float, seconds: float) -> None:
    assert patience(runs_for) == pytest.approx(seconds)


def test_a_process_knows_for_how_long_it_runs() -> None:
    first, began = runs_for(), time.monotonic()
    assert runs_for() - first <= time.monotonic() - began + 0.02
    assert first > 0
