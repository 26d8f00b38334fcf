"""The certificate of a proxy is also checked while no client connects."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from actors.bus.loop import Loop
from actors.forwarding.net import tls_server
from actors.forwarding.net.tls_server import CertificateWatch
from actors.problems import ActiveProblems
from tests.kit.certificates import make_pair


def test_a_pair_that_appears_is_read_by_the_next_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_server, "PERIOD", 0.05)
    monkeypatch.setattr(tls_server, "RETRY", 0.01)
    loop, reports = Loop(), []
    problems = ActiveProblems(loop, time.time, lambda active, over: reports.append((active, over)))
    watch = CertificateWatch(loop, problems)
    watch.use((str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")))
    deadline = time.monotonic() + 120
    while not reports and time.monotonic() < deadline:
        loop.turn(0.01)
    assert [each.serves for each in reports[-1][0]] == [False]
    make_pair(tmp_path)
    while reports[-1][0] and time.monotonic() < deadline:
        loop.turn(0.01)
    assert reports[-1][0] == ()
    assert watch.ends > time.time()
    loop.close()
