"""A black-holed IPv6 costs one delay (RFC 8305), for the whole way from the resolver to the socket."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.kit.folders import ROOT

NAMESPACE = ("unshare", "--map-root-user", "--net")


def test_a_way_that_leads_nowhere_costs_its_delay_once_for_all_names() -> None:
    if subprocess.run([*NAMESPACE, "ip", "link", "add", "type", "veth"], capture_output=True).returncode:
        pytest.skip("no network namespace with a link can be made here")
    command = [*NAMESPACE, sys.executable, "-m", "tests.actor.resolver.black_hole"]
    ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=240)
    found = json.loads(ran.stdout)
    assert [status for _name, _seconds, status, _tried in found] == ["HTTP/1.1 200"] * 4
    assert [tried for _name, _seconds, _status, tried in found] == [1, 0, 0, 0], "IPv6 is tried once, then remembered"
    assert found[0][1] > 0.15, "it was waited for"
    assert found[0][1] < 20.0, "but not until its end"
