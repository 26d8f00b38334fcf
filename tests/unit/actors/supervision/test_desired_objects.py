"""Which objects a proxy needs, and which of two messages about one counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actors.bus.messages.common import forwarding_name
from actors.bus.messages.specs import FleetObject
from actors.supervision.proxies.desired_proxies import DesiredObjects, DesiredProxies
from tests.kit.standin_actors import spec


def an_object(key: str, *names: str, revision: int = 1, identifier: str = "") -> FleetObject:
    return FleetObject(key, identifier or f"id of {key}", revision, names, f"{key} {revision}".encode())


def holding(*objects: FleetObject) -> DesiredObjects:
    found = DesiredObjects()
    found.replace(objects)
    return found


def test_a_proxy_needs_what_it_names_and_what_that_names() -> None:
    objects = holding(
        an_object("policy:a", "pool:a", "list:a"), an_object("pool:a"), an_object("list:a"), an_object("pool:b")
    )
    assert list(objects.needed_by(("policy:a",))) == ["list:a", "policy:a", "pool:a"]
    assert objects.needed_by(()) == {}
    assert objects.needed_by(("policy:gone",)) == {}


def test_a_proxy_may_need_every_list_and_what_plans_name() -> None:
    plans = FleetObject("plans", "plans", 0, ("policy:a",), b"")
    objects = holding(an_object("policy:a"), an_object("policy:b"), an_object("list:a"), an_object("list:b"), plans)
    assert list(objects.needed_by(("list:*", "plans"))) == ["list:a", "list:b", "policy:a"]
    objects.apply([FleetObject("plans", "plans", 0, (), b"")], [])
    assert list(objects.needed_by(("list:*", "plans"))) == ["list:a", "list:b"]


def test_every_proxy_needs_the_policy_that_comes_first() -> None:
    objects = holding(an_object("policy:a", "pool:a"), an_object("pool:a"), an_object("policy:b"))
    before = objects.needed_by(("policy:b",))
    objects.put_first("a")
    assert list(objects.needed_by(())) == ["first-policy", "policy:a", "pool:a"]
    assert list(objects.needed_by(("policy:b",))) == ["first-policy", "policy:a", "policy:b", "pool:a"]
    assert objects.needed_by(())["first-policy"] == b"a"
    objects.put_first("gone")
    assert objects.needed_by(()) == {"first-policy": b"gone"}
    objects.put_first("")
    assert objects.needed_by(("policy:b",)) == before


def test_names_that_go_round_in_circles_end() -> None:
    objects = holding(an_object("policy:a", "policy:b"), an_object("policy:b", "policy:a"))
    assert list(objects.needed_by(("policy:a",))) == ["policy:a", "policy:b"]


def test_the_later_revision_counts_whichever_comes_first() -> None:
    objects = holding(an_object("pool:a", revision=2))
    objects.apply([an_object("pool:a", revision=1)], [])
    assert objects.needed_by(("pool:a",)) == {"pool:a": b"pool:a 2"}
    objects.apply([an_object("pool:a", revision=3)], [])
    assert objects.needed_by(("pool:a",)) == {"pool:a": b"pool:a 3"}


def test_what_is_gone_does_not_come_back_and_another_may_have_its_name() -> None:
    objects = holding(an_object("pool:a"))
    objects.apply([], ["id of pool:a"])
    objects.apply([an_object("pool:a", revision=9)], [])
    assert objects.needed_by(("pool:a",)) == {}
    objects.apply([an_object("pool:a", identifier="another")], [])
    assert list(objects.needed_by(("pool:a",))) == ["pool:a"]


def test_an_object_with_another_name_is_no_longer_known_by_the_first() -> None:
    objects = holding(an_object("pool:a", identifier="one"))
    objects.apply([an_object("pool:b", identifier="one", revision=2)], [])
    assert (objects.needed_by(("pool:a",)), list(objects.needed_by(("pool:b",)))) == ({}, ["pool:b"])


@pytest.mark.parametrize("remove", [lambda desired: desired.remove("a"), lambda desired: desired.replace([])])
def test_a_proxy_that_is_gone_keeps_its_name_in_the_log(remove: Callable[[DesiredProxies], Any]) -> None:
    desired = DesiredProxies()
    desired.put(spec("a", 1, name="office"))
    label = desired.label(forwarding_name("a"))
    assert label.startswith("office (")
    remove(desired)
    assert desired.label(forwarding_name("a")) == label
    assert desired.label(forwarding_name("b")) == forwarding_name("b")
