"""`proxyfleet lists`, `pools` and `policies`: the same commands for each kind."""

from __future__ import annotations

import pytest

from tests.product.cli.shell import Shell


@pytest.mark.product
def test_objects_are_created_listed_changed_and_deleted(shell: Shell) -> None:
    shell.good("lists", "create", "mirrors", "--kind", "domains", "--entry", "a.example", "--entry", "b.example")
    shell.good("pools", "create", "paris", "--policy", "latency")
    rules = 'rules=[{"name": "all", "match": {}, "action": {"use": "pool:paris"}}]'
    shell.good("policies", "create", "builds", "--set", rules)
    assert "a.example" in shell.good("lists", "show", "mirrors").out
    assert "all: pool:paris" in shell.good("policies", "show", "builds").out
    assert shell.good("pools", "list", "-o", "json").data["pools"][0]["policy"] == "latency"
    assert "in use by 1 (policy builds)" in shell("pools", "delete", "paris", "--yes").err
    shell.good("policies", "update", "builds", "--description", "what builds may reach")
    for group, name in (("policies", "builds"), ("pools", "paris"), ("lists", "mirrors")):
        shell.good(group, "delete", name, "--yes")
    assert shell("lists", "show", "mirrors").status != 0
