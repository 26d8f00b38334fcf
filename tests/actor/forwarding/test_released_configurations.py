"""A configuration that was replaced is referenced by nothing, and waits for no collection of garbage."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterator

import pytest

from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import AccessSpec, LimitsSpec, PolicySpec, ProxySpec, RuleSpec
from actors.forwarding.access.policy import AccessPolicy
from actors.forwarding.access.rules import AccessRules
from actors.forwarding.fleet_objects import FleetObjects
from actors.forwarding.limits.accounts import Account
from actors.forwarding.policies.compiled import CompiledPolicy
from actors.forwarding.policies.judge import PolicySet
from actors.forwarding.proxy_policy import ProxyPolicy
from actors.forwarding.upstreams.health_checks import HealthChecks
from actors.forwarding.upstreams.upstream_set import UpstreamSet
from actors.pools.upstream import Upstream
from tests.actor.forwarding.account_client import account, credentials
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.in_process_actor import Inside
from tests.kit.forwarding_rig import until
from tests.kit.scripted_origins import Origin
from tests.kit.upstreams import upstream_entry, upstream_list

KINDS = (
    Configure,
    ProxySpec,
    ProxyPolicy,
    AccessPolicy,
    AccessRules,
    PolicySet,
    CompiledPolicy,
    Account,
    UpstreamSet,
    Upstream,
    HealthChecks,
)
CHANGES = 5


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def configure(rig: Inside, number: int) -> None:
    """A configuration of which everything is another than before."""
    denied = RuleSpec("no", destinations=(f"denied{number}.example", "192.0.2.0/24"), use="deny")
    rig.configure(
        FleetObjects(policies=(PolicySpec("policy_office", "office", (denied,)),)),
        policy="office",
        access=AccessSpec(deny_destinations=(f"also{number}.example",)),
        accounts=(account(f"ada{number}"),),
        auth_required=True,
        limits=LimitsSpec(connections=10 + number, requests_per_minute=100 + number),
        upstreams=upstream_list(upstream_entry(10 * number + 1), upstream_entry(10 * number + 2), check_enabled=True),
    )


def use(rig: Inside, origin: Origin, number: int) -> None:
    with connect(rig) as client:
        client.sendall(get(origin, "/", credentials(f"ada{number}")))
        assert read_response(client)[0].startswith(b"HTTP/1.1 50")


def counts(rig: Inside) -> Counter[type]:
    """Without what this test itself and the rig still hold of it."""
    return Counter(type(each) for each in rig.referenced(*KINDS))


def test_only_the_last_configuration_is_held_however_often_it_has_changed() -> None:
    with Inside() as rig, Origin(lambda _client: None) as origin:
        for number in range(2):
            configure(rig, number)
            use(rig, origin, number)
        before = counts(rig)
        assert before[UpstreamSet] == before[HealthChecks] == 1
        for number in range(2, 2 + CHANGES):
            configure(rig, number)
            use(rig, origin, number)
        until(lambda: all(counts(rig)[kind] <= before[kind] for kind in KINDS), "the previous ones are released")
