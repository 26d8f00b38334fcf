"""reconcile: wish and reality in, steps out, as a table."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.supervision.processes.lifecycle import State
from actors.supervision.reconcile import ActualState, Bind, Forget, SendConfiguration, Start, Stop, reconcile
from tests.supervision.standins import spec

EGRESS = EgressSpec("public_only", (), ())
ELSEWHERE = EgressSpec("public_only", (), (("127.0.0.1", 8080),))
ON = spec("a", 3128)
OFF = spec("a", 3128, active=False)
NEWER = spec("a", 3128, revision=2)
MOVED = spec("a", 3129, revision=2)
HERE = ("127.0.0.1", 3128)
TOLD = Configure(ON, EGRESS)

TABLE: list[tuple[str, ProxySpec | None, ActualState | None, list[Any]]] = [
    ("nothing wished, nothing there", None, None, []),
    ("wished and not there: bind, then start", ON, None, [Bind("a", HERE), Start("a")]),
    ("wished and stopped", ON, ActualState(State.STOPPED), [Bind("a", HERE), Start("a")]),
    ("wished and still starting: patience", ON, ActualState(State.STARTING, HERE), []),
    ("wished, running and told", ON, ActualState(State.RUNNING, HERE, TOLD), []),
    ("running and never told", ON, ActualState(State.RUNNING, HERE), [SendConfiguration("a", TOLD)]),
    (
        "a newer revision is told",
        NEWER,
        ActualState(State.RUNNING, HERE, TOLD),
        [SendConfiguration("a", Configure(NEWER, EGRESS))],
    ),
    (
        "other own listeners are told",
        ON,
        ActualState(State.RUNNING, HERE, Configure(ON, ELSEWHERE)),
        [SendConfiguration("a", TOLD)],
    ),
    ("died: start on the socket that is still bound", ON, ActualState(State.FAILED, HERE), [Start("a")]),
    ("died, and its back-off runs", ON, ActualState(State.FAILED, HERE, backs_off=True), []),
    ("could not be bound, time to try again", ON, ActualState(State.FAILED), [Bind("a", HERE), Start("a")]),
    ("could not be bound, and its back-off runs", ON, ActualState(State.FAILED, backs_off=True), []),
    ("started again while it drains", ON, ActualState(State.DRAINING), [Bind("a", HERE), Start("a")]),
    ("not wished active and running", OFF, ActualState(State.RUNNING, HERE, TOLD), [Stop("a")]),
    ("not wished active and starting", OFF, ActualState(State.STARTING, HERE), [Stop("a")]),
    ("not wished active and failed", OFF, ActualState(State.FAILED, backs_off=True), [Stop("a")]),
    ("not wished active and draining: patience", OFF, ActualState(State.DRAINING), []),
    ("not wished active and stopped", OFF, ActualState(State.STOPPED), []),
    ("not wished active and never there", OFF, None, []),
    ("gone from the wish and running", None, ActualState(State.RUNNING, HERE, TOLD), [Stop("a")]),
    ("gone from the wish and draining: patience", None, ActualState(State.DRAINING), []),
    ("gone from the wish and stopped", None, ActualState(State.STOPPED), [Forget("a")]),
    (
        "wished at another address: stop there, bind and start here",
        MOVED,
        ActualState(State.RUNNING, HERE, TOLD),
        [Stop("a"), Bind("a", ("127.0.0.1", 3129)), Start("a")],
    ),
]


@pytest.mark.parametrize(("desired", "real", "steps"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_steps_for_one_proxy(desired: ProxySpec | None, real: ActualState | None, steps: list[Any]) -> None:
    wished = {} if desired is None else {"a": desired}
    assert reconcile(wished, {} if real is None else {"a": real}, EGRESS) == steps


def test_a_port_that_one_proxy_gives_up_is_there_for_the_next() -> None:
    desired = {"a": OFF, "b": spec("b", 3128)}
    steps = reconcile(desired, {"a": ActualState(State.RUNNING, HERE, TOLD)}, EGRESS)
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
def test_it_is_pure_and_starts_only_what_is_wished(specs: list[ProxySpec], real: dict[str, ActualState]) -> None:
    desired = {each.id: each for each in specs}
    before = (dict(desired), dict(real))
    steps = reconcile(desired, real, EGRESS)
    assert (desired, real) == before
    assert steps == reconcile(desired, real, EGRESS)
    for step in steps:
        if isinstance(step, Start | Bind | SendConfiguration):
            assert desired[step.proxy_id].active
