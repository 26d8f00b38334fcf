"""reconcile: desired and actual state in, steps out, as a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from actors.bus.messages.forwarding import Configure
from actors.bus.messages.specs import EgressSpec, ProxySpec
from actors.supervision.lifecycle import ActorState
from actors.supervision.processes.actor_specs import WorkerId
from actors.supervision.proxies.reconcile import (
    ActualProxy,
    ActualState,
    Bind,
    Forget,
    SendConfiguration,
    Start,
    Step,
    StopProxy,
    StopWorker,
    Watch,
    reconcile,
)
from config.net.names import Ports
from tests.kit.standin_actors import spec
from tests.kit.tables import table

EGRESS = EgressSpec("public_only", (), ())
ELSEWHERE = EgressSpec("public_only", (), (("127.0.0.1", 8080),))
ON = spec("a", 3128)
OFF = spec("a", 3128, active=False)
NEWER = spec("a", 3128, revision=2)
MOVED = spec("a", 3129, revision=2)
SLEEPY = replace(ON, sleep_after=60)
MOVED_SLEEPY = replace(MOVED, sleep_after=60)
HERE = ("127.0.0.1", Ports.of(3128))
THERE = ("127.0.0.1", Ports.of(3129))
CONFIGURED = Configure(ON, EGRESS)
A = WorkerId("a")


def one(
    state: ActorState,
    bound: tuple[str, Ports] | None = None,
    configured: Configure | None = None,
    backs_off: bool = False,
) -> ActualProxy:
    """A proxy with one worker."""
    return ActualProxy(bound, {0: ActualState(state, configured, backs_off)})


def asleep(bound: tuple[str, Ports] | None, *draining: ActorState) -> ActualProxy:
    """A proxy that sleeps."""
    return ActualProxy(bound, dict(enumerate(map(ActualState, draining))), asleep=True)


TABLE: list[tuple[str, ProxySpec | None, ActualProxy | None, list[Any]]] = [
    ("nothing desired, nothing there", None, None, []),
    ("desired and not there: bind, then start", ON, None, [Bind("a", HERE), Start(A)]),
    ("desired and stopped", ON, one(ActorState.STOPPED), [Bind("a", HERE), Start(A)]),
    ("desired and still starting: patience", ON, one(ActorState.STARTING, HERE), []),
    ("desired, running and configured", ON, one(ActorState.RUNNING, HERE, CONFIGURED), []),
    ("running and never configured", ON, one(ActorState.RUNNING, HERE), [SendConfiguration(A, CONFIGURED)]),
    (
        "a newer revision is sent",
        NEWER,
        one(ActorState.RUNNING, HERE, CONFIGURED),
        [SendConfiguration(A, Configure(NEWER, EGRESS))],
    ),
    (
        "other own listeners are sent",
        ON,
        one(ActorState.RUNNING, HERE, Configure(ON, ELSEWHERE)),
        [SendConfiguration(A, CONFIGURED)],
    ),
    ("died: start on the socket that is still bound", ON, one(ActorState.FAILED, HERE), [Start(A)]),
    ("died, and its back-off runs", ON, one(ActorState.FAILED, HERE, backs_off=True), []),
    ("could not be bound, time to try again", ON, one(ActorState.FAILED), [Bind("a", HERE), Start(A)]),
    ("could not be bound, and its back-off runs", ON, one(ActorState.FAILED, backs_off=True), []),
    ("started again while it drains", ON, one(ActorState.DRAINING), [Bind("a", HERE), Start(A)]),
    ("not desired active and running", OFF, one(ActorState.RUNNING, HERE, CONFIGURED), [StopProxy("a")]),
    ("not desired active and starting", OFF, one(ActorState.STARTING, HERE), [StopProxy("a")]),
    ("not desired active and failed", OFF, one(ActorState.FAILED, backs_off=True), [StopProxy("a")]),
    ("not desired active and draining: patience", OFF, one(ActorState.DRAINING), []),
    ("not desired active and stopped", OFF, one(ActorState.STOPPED), []),
    ("not desired active and never there", OFF, None, []),
    ("gone from the desired state and running", None, one(ActorState.RUNNING, HERE, CONFIGURED), [StopProxy("a")]),
    ("gone from the desired state and draining: patience", None, one(ActorState.DRAINING), []),
    ("gone from the desired state and stopped", None, one(ActorState.STOPPED), [Forget(A)]),
    (
        "desired at another address: stop there, bind and start here",
        MOVED,
        one(ActorState.RUNNING, HERE, CONFIGURED),
        [StopProxy("a"), Bind("a", ("127.0.0.1", Ports.of(3129))), Start(A)],
    ),
    (
        "desired at more ports: stop, bind them all and start",
        replace(ON, last_port=3130),
        one(ActorState.RUNNING, HERE, CONFIGURED),
        [StopProxy("a"), Bind("a", ("127.0.0.1", Ports.of(3128, 3130))), Start(A)],
    ),
    ("begins asleep: bind and watch", SLEEPY, asleep(None), [Bind("a", HERE), Watch("a")]),
    ("sleeps", SLEEPY, asleep(HERE), []),
    ("sleeps, and its last process drains", SLEEPY, asleep(HERE, ActorState.SLEEPING), []),
    ("sleeps, desired at another address", MOVED_SLEEPY, asleep(HERE), [Bind("a", THERE), Watch("a")]),
    ("sleeps, and may not any more", ON, asleep(HERE), [Start(A)]),
    ("sleeps, may not any more, and moves", MOVED, asleep(HERE), [Bind("a", THERE), Start(A)]),
    ("wakes: start on the socket that is bound", SLEEPY, ActualProxy(HERE), [Start(A)]),
    ("wakes while its last process drains", SLEEPY, one(ActorState.SLEEPING, HERE), [Start(A)]),
    ("sleeps, and is not desired active", OFF, asleep(HERE), [StopProxy("a")]),
    ("sleeps, and is gone from the desired state", None, asleep(HERE), [StopProxy("a")]),
]


@table(("spec", "actual", "steps"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_steps_for_one_proxy(spec: ProxySpec | None, actual: ActualProxy | None, steps: list[Any]) -> None:
    desired = {} if spec is None else {"a": spec}
    assert reconcile(desired, {} if actual is None else {"a": actual}, EGRESS) == steps


def test_a_port_that_one_proxy_gives_up_is_there_for_the_next() -> None:
    desired = {"a": OFF, "b": spec("b", 3128)}
    steps = reconcile(desired, {"a": one(ActorState.RUNNING, HERE, CONFIGURED)}, EGRESS)
    assert steps == [StopProxy("a"), Bind("b", HERE), Start(WorkerId("b"))]


def several(**workers: ActualState) -> ActualProxy:
    """A proxy at its address, with workers by index: `w0`, `w1`."""
    return ActualProxy(HERE, {int(name[1:]): state for name, state in workers.items()})


RUNS = ActualState(ActorState.RUNNING, CONFIGURED)
SENT_AGAIN = SendConfiguration(WorkerId("a", 1), CONFIGURED)
THREE: list[tuple[str, ActualProxy, list[Step]]] = [
    ("nothing is there", ActualProxy(), [Bind("a", HERE), *(Start(WorkerId("a", each)) for each in range(3))]),
    ("all run", several(w0=RUNS, w1=RUNS, w2=RUNS), []),
    ("one is missing", several(w0=RUNS, w2=RUNS), [Start(WorkerId("a", 1))]),
    ("one has died", several(w0=ActualState(ActorState.FAILED), w1=RUNS, w2=RUNS), [Start(WorkerId("a", 0))]),
    ("one backs off", several(w0=ActualState(ActorState.FAILED, backs_off=True), w1=RUNS, w2=RUNS), []),
    ("one is not configured", several(w0=RUNS, w1=ActualState(ActorState.RUNNING), w2=RUNS), [SENT_AGAIN]),
    (
        "one drains and is wanted again",
        several(w0=RUNS, w1=RUNS, w2=ActualState(ActorState.DRAINING)),
        [Start(WorkerId("a", 2))],
    ),
    ("there is one too many", several(w0=RUNS, w1=RUNS, w2=RUNS, w3=RUNS), [StopWorker(WorkerId("a", 3))]),
    (
        "one too many has failed",
        several(w0=RUNS, w1=RUNS, w2=RUNS, w3=ActualState(ActorState.FAILED)),
        [StopWorker(WorkerId("a", 3))],
    ),
    ("one too many drains", several(w0=RUNS, w1=RUNS, w2=RUNS, w3=ActualState(ActorState.DRAINING)), []),
    (
        "one too many has ended",
        several(w0=RUNS, w1=RUNS, w2=RUNS, w3=ActualState(ActorState.STOPPED)),
        [Forget(WorkerId("a", 3))],
    ),
    ("the address is not free", ActualProxy(None, {0: ActualState(ActorState.FAILED, backs_off=True)}), []),
]


def steps_of(proxy_id: str, spec: ProxySpec | None, actual: ActualProxy, count: int = 1) -> list[Step]:
    desired = {} if spec is None else {proxy_id: spec}
    return reconcile(desired, {proxy_id: actual}, EGRESS, count=lambda _spec: count)


@table(("actual", "steps"), [row[1:] for row in THREE], ids=[row[0] for row in THREE])
def test_steps_for_a_proxy_with_three_workers(actual: ActualProxy, steps: list[Step]) -> None:
    assert steps_of("a", ON, actual, 3) == steps


def test_a_proxy_with_several_workers_stops_and_moves_as_one() -> None:
    actual = several(w0=RUNS, w1=RUNS)
    assert steps_of("a", OFF, actual, 2) == [StopProxy("a")]
    assert steps_of("a", None, actual, 2) == [StopProxy("a")]
    bound = ("127.0.0.1", Ports.of(3129))
    moved = [StopProxy("a"), Bind("a", bound), Start(A), Start(WorkerId("a", 1))]
    assert steps_of("a", MOVED, actual, 2) == moved
    ended = ActualState(ActorState.STOPPED)
    gone = ActualProxy(None, {0: ended, 1: ended})
    assert steps_of("a", None, gone) == [Forget(A), Forget(WorkerId("a", 1))]


SPECS = st.builds(
    spec, st.sampled_from("abc"), st.sampled_from([1, 2]), active=st.booleans(), revision=st.sampled_from([1, 2])
)
STATES = st.builds(
    ActualState,
    st.sampled_from(ActorState),
    st.none() | st.builds(Configure, SPECS, st.sampled_from([EGRESS, ELSEWHERE])),
    st.booleans(),
)
REALS = st.builds(
    ActualProxy,
    st.none() | st.tuples(st.just("127.0.0.1"), st.sampled_from([Ports.of(1), Ports.of(2)])),
    st.dictionaries(st.integers(0, 3), STATES, max_size=4),
)


@given(st.lists(SPECS, max_size=3), st.dictionaries(st.sampled_from("abc"), REALS), st.integers(1, 3))
def test_it_is_pure_and_starts_only_what_is_desired(
    specs: list[ProxySpec], actual: dict[str, ActualProxy], count: int
) -> None:
    desired = {each.id: each for each in specs}
    before = (dict(desired), dict(actual))
    steps = reconcile(desired, actual, EGRESS, count=lambda _spec: count)
    assert (desired, actual) == before
    assert steps == reconcile(desired, actual, EGRESS, count=lambda _spec: count)
    for step in steps:
        if isinstance(step, Bind):
            assert desired[step.proxy_id].active
        elif isinstance(step, Start | SendConfiguration):
            assert desired[step.worker.proxy_id].active
            assert step.worker.index < count
    for identifier in desired.keys() | actual.keys():
        alone = steps_of(identifier, desired.get(identifier), actual.get(identifier, ActualProxy()), count)
        assert alone == [step for step in steps if _proxy_of(step) == identifier]


def _proxy_of(step: Step) -> str:
    return step.proxy_id if isinstance(step, Bind | StopProxy) else step.worker.proxy_id
