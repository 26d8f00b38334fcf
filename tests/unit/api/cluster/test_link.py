"""Nodes ask the buses of each other."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgpack
import pytest

from actors.bus.codec import PROTOCOL_VERSION, Envelope, EnvelopeRole, ProtocolError, decode, encode
from actors.bus.messages.common import LOGS, SUPERVISOR, Failed, Unreachable
from actors.bus.messages.forwarding import CloseConnections, ConnectionFilter, ConnectionsEnded, QueryConnections
from actors.bus.messages.records import LogPage, QueryLogs
from actors.bus.messages.supervision import QueryWorkers, Upgrade, Workers
from actors.bus.permissions import SENDERS
from api.bus_bridge import NodeMissing, on_node
from api.cluster.links import internal_api, link
from api.cluster.links.certificates import Certificates, KnownNode, OwnCertificate, own_certificate
from api.cluster.links.internal_api import InternalApi, NodeRefused, ask
from api.cluster.links.link import AT_ONCE, FROM_OTHER_NODES, PATH, NodeLink, route_to
from config.files.paths import DataDir
from tests.kit.gated_relay import ALL, HOLD, GatedRelay
from tests.kit.tables import table
from tests.kit.wait import wait_until

SEARCH = QueryLogs(0, 1, 10, 0, None, "word", None)
REFUSED = {
    # what an actor says to another of its own machine
    "Hello", "Terminated", "Stop", "ApplySettings", "Configure", "Idle", "Sleep", "Resume", "CheckPoolOnce",
    "CheckPools", "QueryOpen", "DrainConnections", "DropProxyMetrics", "SetProxyNames", "Listening", "ReportProblems",
    "ReportDeniedNames", "Counters", "RenewPassword", "DrainEnded", "ReplayEvents", "FetchWebhooks", "DisableWebhook",
    # what follows from a commit, which each node applies by itself
    "ReserveListener", "CancelListeners", "ApplyProxies", "AwaitProxy", "QueryDesired", "ReplaceProxies",
    "ApplyObjects", "ValidateSettings", "ApplyOverrides", "DescribeSettings", "ResetUsage", "DropAccountUsage",
    "SetWebhooks",
    # what the asked node does for itself
    "Upgrade", "DescribeProgram", "ResetPassword", "FoundFleet", "JoinFleet", "LeaveFleet", "MoveFleet", "RekeyFleet",
    "CheckPool", "AllowTestClient", "QueryTester", "NoteFleet",
}  # fmt: skip
"""What no node may send to another."""


class Bus:
    """That of a node, played here."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any]] = []
        self.replies: dict[str, Any] = {}
        self.release = threading.Event()
        self.hangs = False
        self.most = self._now = 0
        self._lock = threading.Lock()

    def ask(self, to: str, message: Any, timeout: float = 5.0) -> Any:
        return self.ask_all({to: message}, timeout)[to]

    def ask_all(self, requests: Mapping[str, Any], timeout: float = 5.0) -> dict[str, Any]:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.received += requests.items()
        if self.hangs:
            self.release.wait(5)
        with self._lock:
            self._now -= 1
        return {to: self.replies.get(to, Unreachable(to, "it is not on the bus")) for to in requests}

    def publish(self, topic: str, message: Any) -> None: ...


class Stage:
    """Two nodes that serve, a full one that asks, an edge node, and one that is gone."""

    def __init__(self, folder: Path) -> None:
        self.own = {name: own_certificate(DataDir(folder / name)) for name in ("a", "b", "asks", "edge")}
        self.nodes = [
            KnownNode(f"nod_{name}", name, "edge" if name == "edge" else "full", own.pem)
            for name, own in self.own.items()
        ]
        self.buses = {"a": Bus(), "b": Bus()}
        self.apis = {name: self._api(name, bus) for name, bus in self.buses.items()}
        self.documents: dict[str, dict[str, Any]] = {
            f"nod_{name}": {
                "addresses": {"internal": f"127.0.0.1:{api.address[1]}"},
                "certificate": {"pem": self.own[name].pem},
            }
            for name, api in self.apis.items()
        }
        self.link = NodeLink(self.own["asks"], self.documents.get)

    def _api(self, name: str, bus: Bus) -> InternalApi:
        routes = {PATH: route_to(bus)}
        made = InternalApi(("127.0.0.1", 0), Certificates(self.own[name], lambda: self.nodes), lambda: routes)
        made.start()
        return made

    def ask(self, who: OwnCertificate | None, *asked: Any, within: Any = 1.0) -> dict[str, Any]:
        """What the node `a` replies."""
        body = {"within": within, "asked": list(asked)}
        return ask(self.apis["a"].address, self.own["a"].fingerprint, PATH, body, 5, who)

    def close(self) -> None:
        for bus in self.buses.values():
            bus.release.set()
        for api in self.apis.values():
            api.close()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with closing(Stage(tmp_path)) as made:
        yield made


def frame(content: Any) -> str:
    return base64.b64encode(encode(Envelope(content, 0, EnvelopeRole.ASK))).decode()


def test_actors_of_several_nodes_reply_to_one_call(stage: Stage) -> None:
    page = LogPage(({"user": "ä", "bytes_in": 2**40},), 1, next=(5, 7))
    stage.buses["a"].replies = {LOGS: page, SUPERVISOR: Workers({"prx_1": (1, 2)})}
    stage.buses["b"].replies = {"forwarding.prx_1/7": ConnectionsEnded(3)}
    close = CloseConnections(None, ConnectionFilter(user="x"))
    found = stage.link.ask_all(
        {
            "nod_a!logs": SEARCH,
            "nod_a!supervisor": QueryWorkers(("prx_1",)),
            "nod_b!forwarding.prx_1/7": close,
            "nod_b!logs": SEARCH,
        },
        3.0,
    )
    assert found == {
        "nod_a!logs": page,
        "nod_a!supervisor": Workers({"prx_1": (1, 2)}),
        "nod_b!forwarding.prx_1/7": ConnectionsEnded(3),
        "nod_b!logs": Unreachable(LOGS, "it is not on the bus"),
    }
    assert stage.buses["b"].received == [("forwarding.prx_1/7", close), (LOGS, SEARCH)]


def test_each_message_may_come_from_another_node_or_is_named_as_refused() -> None:
    may_come = {each.__name__ for each in FROM_OTHER_NODES}
    sent = {each.__name__ for each in SENDERS}
    assert may_come | REFUSED == sent, "a message is to be in one of both tables"
    assert may_come & REFUSED == set()


def test_what_is_not_for_other_nodes_to_send_does_not_reach_the_bus(stage: Stage) -> None:
    wrong = base64.b64encode(b"no message").decode()
    asked = [
        ["supervisor", frame(Upgrade())],
        ["nod_b!logs", frame(SEARCH)],
        ["logs", wrong],
        ["logs", "no base64"],
        ["logs", frame(LogPage((), 0))],
    ]
    for each in asked:
        (reply,) = stage.ask(stage.own["asks"], each)["replies"]
        assert isinstance(decode(base64.b64decode(reply)).message, Failed)
    assert stage.buses["a"].received == []


@table("asked, within", [([["logs"]], 1.0), ([["logs", 7]], 1.0), (["logs"], 1.0), ([], "1"), ([], None), ([], True)])
def test_what_is_no_request_to_the_bus_is_refused(stage: Stage, asked: list[Any], within: Any) -> None:
    with pytest.raises(NodeRefused) as caught:
        stage.ask(stage.own["asks"], *asked, within=within)
    assert caught.value.status == 400


@table("who", ["edge", None])
def test_an_edge_node_and_a_stranger_may_ask_nothing(stage: Stage, who: str | None) -> None:
    with pytest.raises(NodeRefused) as caught:
        stage.ask(None if who is None else stage.own[who], ["logs", frame(SEARCH)])
    assert caught.value.status == 403
    assert stage.buses["a"].received == []


def test_a_node_that_does_not_respond_is_missing_and_the_others_are_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.buses["a"].hangs = True
    stage.buses["b"].replies = {LOGS: LogPage((), 0)}
    both = {on_node("nod_a", LOGS): SEARCH, on_node("nod_b", LOGS): SEARCH}
    for _ in range(link.MISSED):
        began = time.monotonic()
        found = stage.link.ask_all(both, 0.3)
        assert time.monotonic() - began < 1
        assert isinstance(found["nod_a!logs"], NodeMissing)
        assert found["nod_a!logs"].reason == "no response within 0.3 s"
        assert found["nod_b!logs"] == LogPage((), 0)
    monkeypatch.setattr(link, "PROBE", 0.1)
    stage.apis["a"].close()
    began = time.monotonic()
    assert isinstance(stage.link.ask_all(both, 5)["nod_a!logs"], NodeMissing)
    assert time.monotonic() - began < 1


def test_five_of_ten_nodes_that_say_nothing_hold_up_no_other(stage: Stage) -> None:
    stage.buses["b"].replies = {LOGS: LogPage((), 0)}
    with GatedRelay(stage.apis["a"].address[1]) as relay:
        relay.gates[ALL] = HOLD
        silent = {**stage.documents["nod_a"], "addresses": {"internal": f"127.0.0.1:{relay.port}"}}
        stage.documents |= {f"nod_s{each}": silent for each in range(5)}
        stage.documents |= {f"nod_g{each}": stage.documents["nod_b"] for each in range(5)}
        names = sorted(each for each in stage.documents if each[4] in "sg")
        for _ in range(link.MISSED):
            found = stage.link.ask_all({f"{each}!logs": SEARCH for each in names}, 0.5)
            assert sorted(each for each in names if isinstance(found[f"{each}!logs"], NodeMissing)) == names[5:]
        began = time.monotonic()
        found = stage.link.ask_all({f"{each}!logs": SEARCH for each in names}, 60)
        assert time.monotonic() - began < 30, "they are waited for no more"
        assert [found[f"{each}!logs"] for each in names[:5]] == [LogPage((), 0)] * 5


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (link, internal_api):
        monkeypatch.setattr(module, "SILENCE", 0.5)


@pytest.mark.usefixtures("impatient")
def test_a_slow_request_waits_for_a_node_that_responds_to_others(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    bus = stage.buses["a"]
    bus.hangs, bus.replies = True, {LOGS: LogPage((), 0)}
    probe = link._OtherNode._probe

    def probed(node: Any, place: Any) -> None:
        probe(node, place)
        bus.release.set()

    monkeypatch.setattr(link._OtherNode, "_probe", probed)
    assert stage.link.ask_all({"nod_a!logs": SEARCH}, 10) == {"nod_a!logs": LogPage((), 0)}
    assert bus.release.is_set()


@pytest.mark.usefixtures("impatient")
def test_a_slow_request_does_not_wait_for_a_node_that_responds_to_none(stage: Stage) -> None:
    stage.buses["a"].replies = {LOGS: LogPage((), 0)}
    with GatedRelay(stage.apis["a"].address[1]) as relay:
        stage.documents["nod_a"]["addresses"] = {"internal": f"127.0.0.1:{relay.port}"}
        assert stage.link.ask_all({"nod_a!logs": SEARCH}, 10) == {"nod_a!logs": LogPage((), 0)}
        relay.gates[ALL] = HOLD
        began = time.monotonic()
        assert isinstance(stage.link.ask_all({"nod_a!logs": SEARCH}, 10)["nod_a!logs"], NodeMissing)
        assert time.monotonic() - began < 5


def test_a_node_that_has_missed_deadlines_is_asked_again_once_it_responds(stage: Stage) -> None:
    bus = stage.buses["a"]
    bus.hangs = True
    for _ in range(link.MISSED + 1):
        assert isinstance(stage.link.ask_all({"nod_a!logs": SEARCH}, 0.2)["nod_a!logs"], NodeMissing)
    bus.hangs, bus.replies = False, {LOGS: LogPage((), 0)}
    assert stage.link.ask_all({"nod_a!logs": SEARCH}, 3) == {"nod_a!logs": LogPage((), 0)}


def test_a_node_has_few_requests_at_a_time(stage: Stage) -> None:
    bus = stage.buses["a"]
    bus.hangs, bus.replies = True, {LOGS: LogPage((), 0)}
    found: list[Any] = []

    def ask_once() -> None:
        found.append(stage.link.ask_all({"nod_a!logs": SEARCH}, 10)["nod_a!logs"])

    threads = [threading.Thread(target=ask_once) for _ in range(2 * AT_ONCE)]
    for each in threads:
        each.start()
    wait_until(lambda: bus.most == AT_ONCE, "as many as may be have come")
    bus.release.set()
    for each in threads:
        each.join()
    assert bus.most == AT_ONCE
    assert found == [LogPage((), 0)] * 2 * AT_ONCE


@table("lacks", ["address", "certificate", "document", "right certificate", "process"])
def test_a_node_that_cannot_be_asked_says_why_without_its_address(stage: Stage, lacks: str) -> None:
    there = stage.documents["nod_a"]
    document: dict[str, Any] | None = {
        "address": {**there, "addresses": {}},
        "certificate": {**there, "certificate": {"pem": ""}},
        "document": None,
        "right certificate": {**there, "certificate": {"pem": stage.own["b"].pem}},
        "process": there,
    }[lacks]
    if lacks == "process":
        stage.apis["a"].close()
    reply = NodeLink(stage.own["asks"], lambda _id: document).ask_all({"nod_a!logs": SEARCH}, 2)["nod_a!logs"]
    assert isinstance(reply, NodeMissing)
    assert reply.reason
    assert "127.0.0.1" not in reply.reason


def test_a_reply_that_is_too_large_has_failed_and_the_others_have_not(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "REPLY", 2**20 + 2000)
    stage.buses["a"].replies = {LOGS: LogPage(({"target": "x" * 3000},), 1), SUPERVISOR: Workers({})}
    found = stage.link.ask_all({"nod_a!logs": SEARCH, "nod_a!supervisor": QueryWorkers(())}, 3)
    assert isinstance(found["nod_a!logs"], Failed)
    assert found["nod_a!supervisor"] == Workers({})


@table("figure", [float("nan"), float("inf"), float("-inf"), 1e300])
def test_a_reply_with_a_figure_that_is_none_has_failed(stage: Stage, figure: float) -> None:
    stage.buses["a"].replies = {LOGS: LogPage(({"took": [1.0, {"ms": figure}]},), 1), SUPERVISOR: Workers({})}
    found = stage.link.ask_all({"nod_a!logs": SEARCH, "nod_a!supervisor": QueryWorkers(())}, 3)
    assert isinstance(found["nod_a!logs"], Failed)
    assert found["nod_a!supervisor"] == Workers({})


# --- releases -----------------------------------------------------------------------------------------------------

QUERY = {"only": {"client": "192.0.2.1"}, "sort": "age", "limit": 7}
READ = QueryConnections(ConnectionFilter("192.0.2.1"), "age", 7, 0)


def of_body(body: Any, of_other_release: bool = True) -> Any:
    content: bytes = msgpack.packb([PROTOCOL_VERSION, "QueryConnections", 0, 0, body])
    return decode(content, of_other_release).message


@table(
    "more", [{}, {"new": 2}, {"only": {"client": "192.0.2.1", "new": [1]}}, {"offset": 0}, {"sort": "age", "new": None}]
)
def test_of_another_release_unknown_fields_are_ignored_and_missing_ones_have_their_default(
    more: dict[str, Any],
) -> None:
    assert of_body({"offset": 0, **QUERY, **more}) == READ
    with pytest.raises(ProtocolError):
        of_body({**QUERY, "new": 2, **more}, of_other_release=False)


@table("body", [{}, {**QUERY, "offset": "1"}, {**QUERY, "offset": 0, "only": 5}, [1], {"offset": 0, "new": 1}])
def test_what_is_wrong_is_refused_of_another_release_too(body: Any) -> None:
    with pytest.raises(ProtocolError):
        of_body(body)
