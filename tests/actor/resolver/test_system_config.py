"""The system's configuration of name resolution: what is read of it, and that changes are followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from actors.net.resolver_protocol import FOUND, SYSTEM
from actors.resolver.profiles import ProfileKey, SystemProfile
from actors.resolver.system_config import Resolv, Switch, SystemConfig, read_resolv, read_switch
from tests.actor.resolver.resolving import Resolving
from tests.kit.name_servers import ScriptedNameServer, zone


def test_resolv_conf_is_read_as_its_page_says() -> None:
    text = """
# a comment
domain old.example
nameserver 192.0.2.1 ; another comment
nameserver 2001:db8::53
nameserver not-an-address
nameserver fe80::1%eth0
nameserver 192.0.2.4
search Example.COM. sub.example.com
options ndots:3 timeout:2 attempts:99 rotate use-vc no-aaaa edns0 ndots:x
"""
    servers = ("192.0.2.1", "2001:db8::53", "fe80::1%eth0")
    search = ("example.com", "sub.example.com")
    assert read_resolv(text) == Resolv(servers, search, 1, 2.0, 5, True, True, True)


def test_without_a_server_it_is_the_one_of_this_machine() -> None:
    assert read_resolv("search example.com\n").servers == ("127.0.0.1",)


@pytest.mark.parametrize(
    ("line", "switch"),
    [
        ("hosts: files dns", Switch()),
        ("hosts: files mdns4_minimal [NOTFOUND=return] dns", Switch(multicast=True)),
        ("hosts: files resolve [!UNAVAIL=return] dns myhostname", Switch(own="me")),
        ("hosts:\tfiles wins dns # a comment", Switch(plain=True)),
        ("passwd: files", Switch()),
    ],
)
def test_nsswitch_conf_says_which_names_are_not_of_the_dns(line: str, switch: Switch) -> None:
    assert read_switch(f"# hosts: wins\n{line}\n", "me") == switch


@pytest.mark.parametrize(
    ("switch", "name", "known"),
    [
        (Switch(multicast=True), "printer.local", True),
        (Switch(multicast=True), "www.example.com", False),
        (Switch(own="me"), "me", True),
        (Switch(own="me"), "_gateway", True),
        (Switch(own="me"), "other", False),
        (Switch(plain=True), "box", True),
        (Switch(), "printer.local", False),
    ],
)
def test_the_system_is_asked_for_the_names_that_it_knows(switch: Switch, name: str, known: bool) -> None:
    assert switch.knows(name) is known


def system_profile(resolving: Resolving, port: int) -> SystemProfile:
    system = SystemConfig(resolving.resolv_conf, resolving.nsswitch_conf, port)
    return SystemProfile(resolving.loop, ProfileKey(), resolving.service._new_server, system)


@pytest.mark.parametrize("way", ["written", "renamed", "linked"])
def test_a_change_takes_effect_for_the_next_name_and_drops_what_was_cached(
    resolving: Resolving, tmp_path: Path, way: str
) -> None:
    with ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as server:
        first, second = tmp_path / "first", tmp_path / "second"
        first.write_text("nameserver 127.0.0.9\n")
        second.write_text("# longer\nnameserver 127.0.0.1\n")
        if way == "linked":
            resolving.resolv_conf.symlink_to(first)
        else:
            resolving.resolv_conf.write_text(first.read_text())
        profile = system_profile(resolving, server.port)
        assert "does not resolve" in resolving.resolve(profile, "www.example.com").content
        if way == "linked":
            fresh = tmp_path / "fresh"
            fresh.symlink_to(second)
            fresh.replace(resolving.resolv_conf)
        elif way == "renamed":
            second.replace(resolving.resolv_conf)
        else:
            resolving.resolv_conf.write_text(second.read_text())
        resolving.skip(1.5)
        assert resolving.resolve(profile, "www.example.com").status == FOUND
        assert resolving.forgotten == [""]


def test_a_file_that_vanishes_leaves_what_was_known(resolving: Resolving) -> None:
    with ScriptedNameServer(zone({"*": ("192.0.2.1",)})) as server:
        resolving.resolv_conf.write_text("nameserver 127.0.0.1\n")
        profile = system_profile(resolving, server.port)
        resolving.resolv_conf.unlink()
        resolving.skip(1.5)
        assert resolving.resolve(profile, "www.example.com").status == FOUND


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("web", ["web.a.example", "web.b.example"]),
        ("web.", ["web"]),
        ("web.b", ["web.b", "web.b.a.example", "web.b.b.example"]),
    ],
)
def test_the_search_list_holds_for_names_with_few_dots(resolving: Resolving, name: str, asked: list[str]) -> None:
    with ScriptedNameServer(zone({asked[-1]: ("192.0.2.1",)})) as server:
        resolving.resolv_conf.write_text("nameserver 127.0.0.1\nsearch a.example b.example\n")
        assert resolving.resolve(system_profile(resolving, server.port), name).content == ("192.0.2.1",)
        assert list(dict.fromkeys(each[0].lower() for each in server.queries)) == asked


def test_names_for_other_means_are_left_to_the_system(resolving: Resolving) -> None:
    resolving.nsswitch_conf.write_text("hosts: files mdns4_minimal [NOTFOUND=return] dns\n")
    resolving.skip(1.5)
    assert resolving.resolve(system_profile(resolving, 9), "printer.local").status == SYSTEM
