"""`proxyfleet lists`, `pools` and `policies`: the same commands for each kind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.kit.scripted_origins import Origin
from tests.kit.upstreams import closed_port
from tests.product.cli.shell import Shell


@pytest.mark.product
def test_objects_are_created_listed_changed_and_deleted(shell: Shell) -> None:
    shell.good("lists", "create", "mirrors", "--kind", "domains", "--entry", "a.example", "--entry", "b.example")
    shell.good("pools", "create", "paris", "--policy", "latency")
    rules = 'rules=[{"name": "all", "match": {"destinations": ["list:mirrors"]}, "action": {"use": "deny"}}]'
    shell.good("policies", "create", "builds", "--set", rules)
    assert "a.example" in shell.good("lists", "show", "mirrors").out
    assert "all: deny" in shell.good("policies", "show", "builds").out
    recorded = 'rules=[{"name": "pinned", "match": {}, "action": {"tls_name": "record"}}]'
    shell.good("policies", "update", "builds", "--set", recorded)
    assert "pinned: tls_name record" in shell.good("policies", "show", "builds").out
    shell.good("policies", "update", "builds", "--set", rules)
    assert shell.good("lists", "check", "mirrors", "https://www.a.example/").details["entry"] == "a.example"
    assert shell.good("lists", "check", "mirrors", "c.example", "-o", "json").data["matches"] is False
    assert "no source" in shell("lists", "refresh", "mirrors").err
    assert shell.good("pools", "list", "-o", "json").data["pools"][0]["policy"] == "latency"
    assert "in use by 1 (policy builds)" in shell("lists", "delete", "mirrors", "--yes").err
    shell.good("policies", "update", "builds", "--description", "what builds may reach")
    refused = 'rules=[{"name": "posts", "match": {"methods": ["POST"]}, "action": {"use": "deny"}}]'
    warned = shell.good("policies", "update", "builds", "--set", refused).err
    assert warned.startswith("warning: rules[0].match.methods: "), warned
    shell.good("policies", "update", "builds", "--set", rules)
    for group, name in (("policies", "builds"), ("pools", "paris"), ("lists", "mirrors")):
        shell.good(group, "delete", name, "--yes")
    assert shell("lists", "show", "mirrors").status != 0


@pytest.mark.product
def test_a_file_names_what_is_created_from_it_unless_the_argument_does(shell: Shell) -> None:
    for group, more in (("policies", {}), ("pools", {}), ("plans", {}), ("lists", {"kind": "domains", "entries": []})):
        body = json.dumps({"name": "from-file", **more})
        assert "from-file is created" in shell.good(group, "create", "--from", "-", stdin=body).out
        assert "other is created" in shell.good(group, "create", "other", "--from", "-", stdin=body).out
        assert "name: is required" in shell(group, "create", *(("--kind", "domains") if more else ())).err
        for name in ("from-file", "other"):
            shell.good(group, "delete", name, "--yes")


@pytest.mark.product
def test_a_host_is_blocked_on_all_proxies_on_one_and_no_longer(shell: Shell, proxy: dict[str, Any]) -> None:
    blocked = shell.good("block", "casino.example", "--for", "1h", "--reason", "not here")
    assert "casino.example is refused until" in blocked.out
    assert "by the policy everywhere" in blocked.out
    explain = ("proxies", "explain", proxy["name"], "casino.example:443")
    assert shell.good(*explain).details["rule"] == "policy everywhere[0] block casino.example"
    assert shell.good("policies", "show", "everywhere").details["used by"] == "setting proxy.policy"
    revision = shell.good("history", "-o", "json").data["revisions"][0]["revision"]
    shell.good("block", "*.casino.example", "--proxy", proxy["name"], "--account", "bob", "--end-existing")
    assert shell.good("history", "-o", "json").data["revisions"][0]["revision"] == revision + 1
    rule = shell.good("policies", "show", "everywhere", "-o", "json").data["policy"]["rules"][0]
    assert rule["match"] == {"accounts": ["bob"], "destinations": ["*.casino.example"], "proxies": [proxy["id"]]}
    assert "HOST" in shell("block", "no host").err
    assert "the rule has ended" in shell.good("block", "over.example", "--for", "2020-01-01T00:00:00Z").err
    shell.good("unblock", "over.example")
    assert shell("unblock", "other.example").status == 5
    shell.good("unblock", "casino.example")
    assert shell("unblock", "*.casino.example", "--account", "bob").status == 5
    shell.good("unblock", "*.casino.example", "--proxy", proxy["id"], "--account", "bob")
    long = f"{'x' * 60}.{'y' * 60}.b\u00fccher.example"
    shell.good("block", long)
    shell.good("unblock", long)
    assert shell.good("policies", "show", "everywhere", "-o", "json").data["policy"]["rules"] == []
    shell.good("settings", "set", "proxy.policy=")
    shell.good("policies", "delete", "everywhere", "--yes")


@pytest.mark.product
def test_a_pool_that_no_proxy_uses_is_checked_when_asked_for(shell: Shell) -> None:
    with Origin(lambda sock: sock.close()) as alive:
        upstreams = [
            {"protocol": "http", "host": "127.0.0.1", "port": port, "name": name}
            for name, port in (("alive", alive.port), ("dead", closed_port()))
        ]
        shell.good("pools", "create", "unused", "--set", f"upstreams={json.dumps(upstreams)}")
        printed = shell.good("pools", "check", "unused")
        assert "No active proxy uses the pool" in printed.err
        status = shell.good("pools", "state", "unused", "-o", "json").data
        assert [(each["name"], each["state"], each["checks"]) for each in status["upstreams"]] == [
            ("alive", "up", 1),
            ("dead", "down", 1),
        ]
        assert (status["state"], status["usable"], status["used"]) == ("degraded", 1, False)
        assert shell.good("pools", "check", "unused", "-o", "json").data["upstreams"][0]["checks"] == 2
        assert shell.good("pools", "show", "unused").details["usable"] == "1 of 2, not used, so not checked"
    shell.good("pools", "delete", "unused", "--yes")


@pytest.mark.product
def test_an_upstream_of_a_pool_is_reported_and_the_state_of_the_pool_shows_it(shell: Shell) -> None:
    upstream = {"protocol": "http", "host": "exit1.example", "port": 3128, "name": "exit1"}
    shell.good("pools", "create", "reported", "--set", f"upstreams={json.dumps([upstream])}")
    report = ("pools", "report", "reported", "exit1")
    assert "exit1 is left alone until" in shell.good(*report, "bad", "--seconds", "90").out
    assert "exit1" in shell.good("pools", "state", "reported").out
    details = shell.good("pools", "show", "reported").details
    assert (details["state"], details["usable"]) == ("unknown", "0 of 1, 1 unknown, not used, so not checked")
    assert details["cooldown"] == "connect 1-60 s, 407 60-600 s, 429 30-300 s, 5xx 5-60 s"
    (shown,) = shell.good("pools", "state", "reported", "-o", "json").data["upstreams"]
    assert (shown["state"], shown["banned_until"] is not None) == ("unknown", True)
    assert "exit1 is used again" in shell.good(*report, "good", "--seconds", "9").out
    assert shell("pools", "report", "reported", "other", "bad").status != 0
    shell.good("pools", "delete", "reported", "--yes")


@pytest.mark.parametrize(
    "words",
    [
        ("lists", "show"),
        ("policies", "update", "--set", "description=x"),
        *(("pools", each) for each in ("refresh", "state", "check")),
    ],
    ids=" ".join,
)
def test_an_object_that_there_is_not_is_named_with_those_that_there_are(shell: Shell, words: tuple[str, ...]) -> None:
    group, deed, *rest = words
    refused = shell(group, deed, "nosuch", *rest)
    assert refused.status == 5
    assert f"There is no {group.replace('ies', 'ys')[:-1]} 'nosuch'" in refused.err
    assert f"All of them: proxyfleet {group} list" in refused.err
