"""What a forwarding actor has of the objects that its proxy names."""

from __future__ import annotations

import pytest

from actors.bus.codec import ProtocolError, pack, unpack
from actors.bus.messages.specs import ListRef, PolicySpec, PoolSpec, RuleSpec, UpstreamSpec, UpstreamsSpec
from actors.forwarding.fleet_objects import FleetObjects, ObjectReader

POOL = PoolSpec("1", "paris", 3, UpstreamsSpec((UpstreamSpec("a", "http", "192.0.2.7", 3128, labels=(("c", "fr"),)),)))
POLICY = PolicySpec("2", "builds", (RuleSpec("r", use="pool:paris"),), 4)
LIST = ListRef("3", "mirrors", 5, "domains", "a.list")
PACKED = {"pool:paris": pack(POOL), "policy:builds": pack(POLICY), "list:mirrors": pack(LIST)}


def test_objects_are_of_their_kind() -> None:
    assert ObjectReader().read(PACKED) == FleetObjects((LIST,), (POOL,), (POLICY,))
    assert ObjectReader().read({}) == FleetObjects()
    assert ObjectReader().read({"first-policy": b"builds"}) == FleetObjects(first_policy="builds")


def test_changes_are_of_the_objects_before() -> None:
    reader = ObjectReader()
    assert reader.read({}, changes=True) == FleetObjects()
    before = reader.read(PACKED)
    assert reader.read({}, changes=True) is before
    assert reader.read(dict(PACKED)) is before
    other = ListRef("3", "mirrors", 6, "domains", "b.list")
    after = reader.read({"list:mirrors": pack(other), "policy:builds": b""}, changes=True)
    assert after == FleetObjects((other,), (POOL,), ())
    assert after.pools[0] is before.pools[0]
    assert reader.read({}) == FleetObjects()


def test_what_stays_the_same_is_not_read_again() -> None:
    reader = ObjectReader()
    before = reader.read(PACKED)
    other = PolicySpec("2", "builds")
    after = reader.read({**PACKED, "policy:builds": pack(other)})
    assert after.pools[0] is before.pools[0]
    assert after.policies == (other,)
    assert before.policies == (POLICY,)


def test_bytes_of_another_kind_are_refused() -> None:
    for packed in (pack(LIST), b"\xc1", b""):
        with pytest.raises(ProtocolError):
            unpack(PoolSpec, packed)
    with pytest.raises(ProtocolError):
        ObjectReader().read({"policy:builds": pack(LIST)})
