"""reconcile: desired and actual state in, steps out, as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.supervision.processes.lifecycle import State
from actors.supervision.reconcile import ActualState, Bind, Forget, SendConfiguration, Start, Stop, reconcile
from tests.kit.standin_actors import spec

EGRESS = EgressSpec("public_only", (), ())
ELSEWHERE = EgressSpec("public_only", (), (("127.0.0.1", 8080),))
ON = spec("a", 3128)
OFF = spec("a", 3128, active=False)
NEWER = spec("a", 3128, revision=2)
MOVED = spec("a", 3129, revision=2)
HERE = ("127.0.0.1", 3128)
CONFIGURED = Configure(ON, EGRESS)

TABLE: list[tuple[str, ProxySpec | None, ActualState | None, list[Any]]] = [
    ("nothing desired, nothing there", None, None, []),
    ("desired and not there: bind, then start", ON, None, [Bind("a", HERE), Start("a")]),
    ("desired and stopped", ON, ActualState(State.STOPPED), [Bind("a", HERE), Start("a")]),
    ("desired and still starting: patience", ON, ActualState(State.STARTING, HERE), []),
    ("desired, running and configured", ON, ActualState(State.RUNNING, HERE, CONFIGURED), []),
    ("running and never configured", ON, ActualState(State.RUNNING, HERE), [SendConfiguration("a", CONFIGURED)]),
    (
        "a newer revision is sent",
        NEWER,
        ActualState(State.RUNNING, HERE, CONFIGURED),
        [SendConfiguration("a", Configure(NEWER, EGRESS))],
    ),
    (
        "other own listeners are sent",
        ON,
        ActualState(State.RUNNING, HERE, Configure(ON, ELSEWHERE)),
        [SendConfiguration("a", CONFIGURED)],
    ),
    ("died: start on the socket that is still bound", ON, ActualState(State.FAILED, HERE), [Start("a")]),
    ("died, and its back-off runs", ON, ActualState(State.FAILED, HERE, backs_off=True), []),
    ("could not be bound, time to try again", ON, ActualState(State.FAILED), [Bind("a", HERE), Start("a")]),
    ("could not be bound, and its back-off runs", ON, ActualState(State.FAILED, backs_off=True), []),
    ("started again while it drains", ON, ActualState(State.DRAINING), [Bind("a", HERE), Start("a")]),
    ("not desired active and running", OFF, ActualState(State.RUNNING, HERE, CONFIGURED), [Stop("a")]),
    ("not desired active and starting", OFF, ActualState(State.STARTING, HERE), [Stop("a")]),
    ("not desired active and failed", OFF, ActualState(State.FAILED, backs_off=True), [Stop("a")]),
    ("not desired active and draining: patience", OFF, ActualState(State.DRAINING), []),
    ("not desired active and stopped", OFF, ActualState(State.STOPPED), []),
    ("not desired active and never there", OFF, None, []),
    ("gone from the desired state and running", None, ActualState(State.RUNNING, HERE, CONFIGURED), [Stop("a")]),
    ("gone from the desired state and draining: patience", None, ActualState(State.DRAINING), []),
    ("gone from the desired state and stopped", None, ActualState(State.STOPPED), [Forget("a")]),
    (
        "desired at another address: stop there, bind and start here",
        MOVED,
        ActualState(State.RUNNING, HERE, CONFIGURED),
        [Stop("a"), Bind("a", ("127.0.0.1", 3129)), Start("a")],
    ),
]


@pytest.mark.parametrize(("spec", "actual", "steps"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_steps_for_one_proxy(spec: ProxySpec | None, actual: ActualState | None, steps: list[Any]) -> None:
    desired = {} if spec is None else {"a": spec}
    assert reconcile(desired, {} if actual is None else {"a": actual}, EGRESS) == steps


def test_a_port_that_one_proxy_gives_up_is_there_for_the_next() -> None:
    desired = {"a": OFF, "b": spec("b", 3128)}
    steps = reconcile(desired, {"a": ActualState(State.RUNNING, HERE, CONFIGURED)}, EGRESS)
    assert steps == [Stop("a"), Bind("b", HERE), Start("b")]


SPECS = st.builds(
    spec, st.sampled_from("abc"), st.sampled_from([1, 2]), active=st.booleans(), revision=st.sampled_from([1, 2])
)
REALS = st.builds(
    ActualState,
    st.sampled_from(State),
    st.none() | st.tuples(st.just("127.0.0.1"), st.sampled_from([1, 2])),
    st.none() | st.builds(Configure, SPECS, st.sampled_from([EGRESS, ELSEWHERE])),
    st.booleans(),
)


@given(st.lists(SPECS, max_size=3), st.dictionaries(st.sampled_from("abc"), REALS))
def test_it_is_pure_and_starts_only_what_is_desired(specs: list[ProxySpec], actual: dict[str, ActualState]) -> None:
    desired = {each.id: each for each in specs}
    before = (dict(desired), dict(actual))
    steps = reconcile(desired, actual, EGRESS)
    assert (desired, actual) == before
    assert steps == reconcile(desired, actual, EGRESS)
    for step in steps:
        if isinstance(step, Start | Bind | SendConfiguration):
            assert desired[step.proxy_id].active
