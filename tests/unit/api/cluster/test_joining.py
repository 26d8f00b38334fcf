"""A machine joins a fleet by a token, or it doesn't; nothing between, whenever it is killed."""

from __future__ import annotations

import base64
import json
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from actors.cluster.identity import NodeIdentity, identity_of
from api.cluster import joining as module
from api.cluster.joining import PATH, Admission, JoinRefused, ask_to_join, finish_joining, read_ahead, what_is_there
from api.cluster.links.certificates import Certificates, KnownNode, NodeCertificateError, own_certificate
from api.cluster.links.internal_api import InternalApi, NodeRefused, NodeUnreachable, Route
from api.cluster.roles import NodeLogin, end_role
from api.engine.commit import Engine
from api.operator.joining import join
from api.process import open_store
from api.store import StoreError, Write
from config.files.paths import DataDir, open_data_dir
from config.files.secret_box import secret_box_of
from config.model.nodes import NodeRecord
from config.model.nodes.tokens import COLLECTION as TOKENS
from config.model.nodes.tokens import NodeTokenCreate, TokenLine, new_token
from tests.kit.fleet_database import begin_roles
from tests.kit.postgresql import needs_postgresql
from tests.kit.tables import table
from tests.unit.api.cluster.nodes import Fleet, fleet, owner

pytestmark = needs_postgresql
_numbers = iter(range(10**6))


class Asked:
    """A full node that lets others in."""

    def __init__(self, made: Fleet, stack: ExitStack) -> None:
        self.fleet = made
        self.login = NodeLogin(f"nod_{next(_numbers):016}", "full")
        begin_roles(made.database, self.login)
        dsn = self.login.dsn(made.dsn)
        self.node = made.node(self.login.node, dsn)
        self.seal = secret_box_of(self.node.data)
        self.own = own_certificate(self.node.data)
        self.put("nodes", NodeRecord(id=self.login.node, name="first", created_at=1.0).model_dump(mode="json"))
        self.certificates = Certificates(self.own, self.known)
        identity = NodeIdentity(made.id, self.login.node, "first", "full", dsn)
        self.events: list[tuple[str, str]] = []
        self.admission = Admission(
            self.node.engine, self.seal, identity, made.database, self.certificates,
            lambda event, data: self.events.append((event, data["name"])),
        )  # fmt: skip
        route = Route(self.admission.handle, for_strangers=True)
        self.api = stack.enter_context(closing(InternalApi(("127.0.0.1", 0), self.certificates, lambda: {PATH: route})))
        self.api.start()

    def known(self) -> list[KnownNode]:
        found = [KnownNode.of(each.body) for each in self.node.engine.find("nodes")]
        return [each for each in found if each.certificate]

    def put(self, collection: str, body: dict[str, Any] | None, identifier: str = "") -> None:
        key = identifier or (body or {})["id"]
        self.node.engine.commit([Write(collection, key, body, self.node.engine.revision_of(collection, key))])

    def token(self, ttl: int = 3600, **fields: Any) -> TokenLine:
        now = self.fleet.database.time()
        record, secret = new_token(NodeTokenCreate(**fields), now - 3600 + ttl)
        self.put(TOKENS, record.model_dump(mode="json"))
        address = "{}:{}".format(*self.api.address)
        return TokenLine(self.own.fingerprint, record.id, secret, address)

    def names(self) -> set[str]:
        return {each.body["name"] for each in self.node.engine.find("nodes")}

    def roles(self) -> int:
        ((count,),) = self.fleet.execute("SELECT count(*) FROM pg_roles WHERE rolname LIKE 'pf_nod_%' AND rolcanlogin")
        return int(count)


@pytest.fixture(scope="module")
def asked() -> Iterator[Asked]:
    with ExitStack() as stack:
        dsn = stack.enter_context(owner())
        yield Asked(stack.enter_context(fleet(dsn)), stack)


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    return open_data_dir(tmp_path / "new")


def read_state(_identity: NodeIdentity, folder: DataDir) -> None:
    folder.fleet.write_text("the fleet's")


def test_a_machine_joins_and_has_what_it_needs_and_nothing_can_be_read_by_others(asked: Asked, data: DataDir) -> None:
    line = asked.token(name="fra2", tags=["eu"])
    assert ask_to_join(data, line.text, "ignored") == "fra2"
    assert asked.events == [("node.joined", "fra2")]
    assert not data.node.exists()
    assert finish_joining(data, read_state)
    assert not data.joining.exists()
    assert data.fleet.read_text() == "the fleet's"
    identity = identity_of(data, secret_box_of(data))
    assert identity is not None
    assert (identity.fleet, identity.name, identity.role) == (asked.fleet.id, "fra2", "full")
    assert secret_box_of(data).exported() == asked.seal.exported()
    assert {stat.S_IMODE(each.stat().st_mode) for each in data.cluster.iterdir()} == {0o600}
    (document,) = asked.node.engine.find("nodes", name="fra2")
    own = own_certificate(data)
    assert document.body["certificate"] == {"fingerprint": own.fingerprint, "pem": own.pem}
    assert document.body["tags"] == ["eu"]
    assert document.body["addresses"] == {"internal": "127.0.0.1"}
    with psycopg.connect(identity.dsn) as connection:
        assert connection.execute("SELECT proxyfleet.this_node()").fetchone() == (identity.id,)
    with asked.node.engine.file.reading() as database:
        entries = [json.loads(text) for (text,) in database.execute("SELECT content FROM audit ORDER BY seq")]
    assert {each["action"] for each in entries[-2:]} == {"node.created", "node_token.updated"}
    assert line.secret not in str(entries)
    assert not finish_joining(data, read_state)


def test_the_state_is_read_whole_before_it_is_a_node_and_an_edge_gets_what_it_may_read(
    asked: Asked, tmp_path: Path
) -> None:
    asked.put("proxies", {"id": "prx_here", "name": "here", "nodes": {"tags": ["cable"]}})
    asked.put("proxies", {"id": "prx_full", "name": "full", "nodes": {"names": ["first"]}})
    asked.put("webhooks", {"id": "whk_a", "name": "a"})
    whole = {"proxies": {"prx_here", "prx_full"}, "webhooks": {"whk_a"}}
    for role, wanted in (("full", whole), ("edge", {"proxies": {"prx_here"}, "webhooks": set()})):
        data = open_data_dir(tmp_path / role)
        ask_to_join(data, asked.token(role=role, tags=["cable"]).text, f"reads-{role}")
        assert finish_joining(data)
        with closing(Engine(data, secret_box_of(data))) as engine:
            assert {name: {each.id for each in engine.find(name)} for name in wanted} == wanted
            assert engine.find("nodes", name=f"reads-{role}")
    for collection, ids in whole.items():
        for each in ids:
            asked.put(collection, None, each)


def test_a_stopped_installation_joins_and_one_that_is_used_only_by_discarding_what_it_has(
    asked: Asked, data: DataDir
) -> None:
    with closing(Engine(data, secret_box_of(data))) as engine:
        engine.put("users", {"id": "usr_a", "username": "admin"}, 0)
        engine.put("users", {"id": "usr_b", "username": "alice"}, 0)
    line = asked.token().text
    with pytest.raises(JoinRefused, match="has 1 user, which would be lost: --discard"):
        join(data, "", line, "used")
    assert "used" not in asked.names()
    assert not data.node.exists()
    assert join(data, "", line, "used", discard=True) == "used"
    opened = open_store(data)
    with closing(opened.engine), closing(opened.node or pytest.fail("it is no node")):
        assert opened.engine.find("users") == []


def test_a_start_finishes_what_was_begun(asked: Asked, data: DataDir) -> None:
    ask_to_join(data, asked.token().text, "begun")
    opened = open_store(data)
    with closing(opened.engine), closing(opened.node or pytest.fail("it is no node")):
        assert opened.engine.find("nodes", name="begun")
    assert not data.joining.exists()


@table(
    "given, changed, why",
    [
        ({}, {"secret": "A" * 43}, "no such token"),
        ({}, {"id": "tok_" + "0" * 16}, "no such token"),
        ({"ttl": -10}, {}, "the token is over"),
    ],
)
def test_a_token_that_is_no_good_is_refused(
    asked: Asked, data: DataDir, given: dict[str, Any], changed: dict[str, str], why: str
) -> None:
    line = asked.token(**given)
    wrong = TokenLine(**{**{name: getattr(line, name) for name in TokenLine.__slots__}, **changed})
    before, roles = asked.names(), asked.roles()
    with pytest.raises(NodeRefused, match=why) as caught:
        ask_to_join(data, wrong.text, "other")
    assert wrong.secret not in str(caught.value)
    assert (asked.names(), asked.roles()) == (before, roles)
    assert not data.joining.exists()


def test_a_token_that_was_revoked_is_refused(asked: Asked, data: DataDir) -> None:
    line, roles = asked.token(), asked.roles()
    asked.put(TOKENS, None, line.id)
    with pytest.raises(NodeRefused, match="no such token: it was revoked, or is of another fleet"):
        ask_to_join(data, line.text, "revoked")
    assert ("revoked" in asked.names(), asked.roles(), data.joining.exists()) == (False, roles, False)


def test_a_token_of_a_node_that_was_removed_is_refused_and_leaves_nothing(data: DataDir) -> None:
    with ExitStack() as stack:
        gone = Asked(stack.enter_context(fleet(stack.enter_context(owner()))), stack)
        line, roles = gone.token(), gone.roles()
        end_role(gone.fleet.database, gone.login.node)
        with pytest.raises(NodeRefused, match="the node can't be let in now") as caught:
            ask_to_join(data, line.text, "late")
        assert caught.value.status == 503
        assert line.secret not in str(caught.value)
        assert gone.fleet.execute("SELECT 1 FROM proxyfleet.documents WHERE body ->> 'name' = 'late'") == []
        assert (gone.roles(), data.joining.exists()) == (roles - 1, False)


def test_another_machine_at_the_address_gets_no_secret(asked: Asked, data: DataDir, tmp_path: Path) -> None:
    line = asked.token()
    got: list[Any] = []

    def take(_node: KnownNode | None, body: Mapping[str, Any]) -> dict[str, Any]:
        got.append(body)
        return {}

    theirs = Certificates(own_certificate(open_data_dir(tmp_path / "theirs")), list)
    with closing(InternalApi(("127.0.0.1", 0), theirs, lambda: {PATH: Route(take, for_strangers=True)})) as other:
        other.start()
        address = "{}:{}".format(*other.address)
        for wrong in (
            TokenLine("0" * 64, line.id, line.secret, line.address),
            TokenLine(line.fingerprint, line.id, line.secret, address),  # of another fleet, at this address now
        ):
            with pytest.raises(NodeCertificateError, match="nothing was sent"):
                ask_to_join(data, wrong.text)
        assert got == []
        with pytest.raises(JoinRefused, match="can't be read: is it of another release"):
            ask_to_join(data, TokenLine(theirs.own.fingerprint, line.id, line.secret, address).text)
        assert [each["secret"] for each in got] == [line.secret], "else this test sees nothing"
    assert not data.joining.exists()


def test_a_line_that_was_cut_short_anywhere_is_refused_without_its_text(asked: Asked, data: DataDir) -> None:
    line = asked.token()
    whole = line.text
    for length in range(len(whole) - len(line.address) + 1):
        with pytest.raises(JoinRefused) as caught:
            ask_to_join(data, whole[:length])
        assert line.secret[:8] not in str(caught.value)
    cut_in_the_port = f"{whole.rpartition(':')[0]}:1"
    with pytest.raises(NodeUnreachable) as unreached:
        ask_to_join(data, cut_in_the_port)
    assert line.secret not in str(unreached.value)
    for more in (f"{whole} {whole}", f"'{whole}'", whole.upper(), whole.replace(".tok", " .tok")):
        with pytest.raises(JoinRefused):
            ask_to_join(data, more)
    assert ask_to_join(data, f"  {whole}\r\n", "padded") == "padded"


@table("years", [1, -1])
def test_a_clock_that_is_a_year_off_keeps_no_machine_from_joining_and_none_in_by_a_token_that_is_over(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, years: int
) -> None:
    """That of the machine that joins, and that of the node that it asks."""
    real = time.time
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + years * 31_536_000)
        data, late = open_data_dir(tmp_path / f"{years}"), open_data_dir(tmp_path / f"late{years}")
        with pytest.raises(NodeRefused, match="the token is over"):
            ask_to_join(late, asked.token(-10).text, "over")
        line = asked.token(60)
        name = ask_to_join(data, line.text, f"year{'ahead' if years > 0 else 'behind'}")
        assert finish_joining(data)
        with closing(Engine(data, secret_box_of(data))) as engine:
            (document,) = engine.find("nodes", name=name)
            assert document.body["created_at"] == pytest.approx(real(), abs=60)
            (used,) = [each.body for each in engine.find(TOKENS) if each.id == line.id]
            assert used["used_at"] == pytest.approx(real(), abs=60)


@table(
    "line", ["", "pfn1.", "pfn2." + "0" * 64, "pfn1." + "0" * 64 + ".tok_0000000000000000." + "A" * 43 + ".host:99999"]
)
def test_a_line_that_is_no_token_is_refused_without_its_text(data: DataDir, line: str) -> None:
    with pytest.raises((JoinRefused, ValueError)) as caught:
        ask_to_join(data, line)
    assert "AAAA" not in str(caught.value)


def test_a_token_is_good_once(asked: Asked, tmp_path: Path) -> None:
    line = asked.token()
    one, two = open_data_dir(tmp_path / "one"), open_data_dir(tmp_path / "two")
    ask_to_join(one, line.text, "once")
    with pytest.raises(NodeRefused, match="used by another machine"):
        ask_to_join(two, line.text, "twice")
    assert "twice" not in asked.names()


def test_the_same_machine_may_use_its_token_again_until_it_is_over(asked: Asked, data: DataDir) -> None:
    line = asked.token()
    ask_to_join(data, line.text, "again")
    first = json.loads(data.joining.read_text())
    data.joining.unlink()
    ask_to_join(data, line.text, "again")
    second = json.loads(data.joining.read_text())
    assert (first["id"], first["key"]) == (second["id"], second["key"])
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(first["dsn"])
    psycopg.connect(second["dsn"]).close()
    asked.put("nodes", None, second["id"])
    data.joining.unlink()
    with pytest.raises(NodeRefused, match="its node was removed"):
        ask_to_join(data, line.text, "again")


def test_a_stolen_line_is_worth_nothing_without_the_key_of_the_machine_that_used_it(
    asked: Asked, data: DataDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = asked.token()
    ask_to_join(data, line.text, "robbed")
    thief = open_data_dir(tmp_path / "thief")
    public, own = own_certificate(data), own_certificate(thief)
    stolen = type(own)(public.cert_file, own.key_file, public.pem)
    monkeypatch.setattr(module, "own_certificate", lambda _data: stolen)
    with pytest.raises(NodeRefused, match="the signature is not"):
        ask_to_join(thief, line.text, "robbed")


@table(
    "name, address, why",
    [
        ("first", "", "there is a node first already"),
        ("FIRST", "", "there is a node FIRST already"),
        ("a b", "", "--name: must be"),
        ("x" * 64, "", "--name: must be"),
        ("ok", "no address", "--address: must be"),
        ("ok", "10.0.0.1:99999", "--address: must be"),
    ],
)
def test_names_and_addresses_that_can_not_be_are_refused(
    asked: Asked, data: DataDir, name: str, address: str, why: str
) -> None:
    with pytest.raises(NodeRefused, match=why):
        ask_to_join(data, asked.token().text, name, address)
    ask_to_join(data, asked.token().text, f"other-{next(_numbers)}")


def test_a_certificate_with_more_in_its_text_does_not_keep_others_from_asking(asked: Asked, data: DataDir) -> None:
    line, own = asked.token(name="fra7"), own_certificate(data)
    signature = own.sign(f"proxyfleet join {line.id} {line.fingerprint}")
    texts = {"token": line.id, "secret": line.secret, "name": ""}
    said = {**texts, "signature": base64.b64encode(signature).decode(), "address": "192.0.2.7"}
    asked.admission.handle(None, {**said, "certificate": f"more {own.pem}"})
    assert asked.certificates.server_context(), "OpenSSL finds no certificate in a text that begins with more"


def test_an_edge_gets_the_role_of_an_edge(asked: Asked, data: DataDir) -> None:
    ask_to_join(data, asked.token(role="edge").text, "edge-1")
    reply = json.loads(data.joining.read_text())
    assert reply["role"] == "edge"
    with psycopg.connect(reply["dsn"], autocommit=True) as connection:
        assert connection.execute("SELECT proxyfleet.is_edge()").fetchone() == (True,)


def test_a_fleet_with_one_role_for_all_has_no_edge_nodes(asked: Asked, data: DataDir) -> None:
    asked.fleet.execute("UPDATE proxyfleet.fleet SET has_roles = false")
    try:
        with pytest.raises(NodeRefused, match="no edge nodes"):
            ask_to_join(data, asked.token(role="edge").text, "edge-2")
        ask_to_join(data, asked.token().text, "shared")
        assert f"pf_{asked.login.node}" in json.loads(data.joining.read_text())["dsn"]
    finally:
        asked.fleet.execute("UPDATE proxyfleet.fleet SET has_roles = true")


def test_killed_at_every_step_it_has_joined_or_not_and_finishes(
    asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = asked.token()

    class Killed(BaseException):
        pass

    def killed(*_: object, **__: object) -> None:
        raise Killed

    at_join = ["own_certificate", "ask", "replace_file", "Database"]
    at_finish = ["open_data_dir", "_take_key", "_replace_store", "sync"]
    data = open_data_dir(tmp_path / "killed")

    def is_killed(step: str, run: Callable[[], object]) -> bool:
        with monkeypatch.context() as patched:
            patched.setattr(module, step, killed)
            try:
                run()
            except Killed:
                return True
        return False

    for step in at_join:
        assert is_killed(step, lambda: ask_to_join(data, line.text, "killed"))
        assert not data.joining.exists()
        assert not finish_joining(data, read_state)
    ask_to_join(data, line.text, "killed")
    for step in at_finish:
        assert is_killed(step, lambda: finish_joining(data, read_state))
        assert data.joining.exists() or data.node.exists()
    finish_joining(data, read_state)
    assert data.node.exists()
    assert not data.joining.exists()
    assert sorted(each.name for each in data.cluster.iterdir()) == ["node.crt", "node.json", "node.pem"]


def test_the_asked_node_killed_between_the_commit_and_the_role_is_asked_again(
    asked: Asked, data: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = asked.token()
    with monkeypatch.context() as patched:
        patched.setattr(Admission, "_logins", lambda *_: 1 / 0)
        with pytest.raises(NodeRefused, match="see the log"):
            ask_to_join(data, line.text, "halfway")
    assert "halfway" in asked.names()
    ask_to_join(data, line.text, "halfway")
    psycopg.connect(json.loads(data.joining.read_text())["dsn"]).close()


def test_a_state_that_can_not_be_read_is_read_at_the_next_try(asked: Asked, data: DataDir) -> None:
    ask_to_join(data, asked.token().text, "later")

    def fail(_identity: NodeIdentity, _folder: DataDir) -> None:
        raise StoreError("no database")

    data.fleet.write_text("as before")
    with pytest.raises(StoreError, match="no database"):
        finish_joining(data, fail)
    assert data.fleet.read_text() == "as before"
    assert not data.node.exists()
    assert finish_joining(data, read_state)


def test_what_was_read_while_the_api_served_is_not_read_again(asked: Asked, data: DataDir) -> None:
    def fail(_identity: NodeIdentity, _folder: DataDir) -> None:
        raise StoreError("it was read")

    ask_to_join(data, asked.token().text, "ahead")
    data.fleet.write_text("as before")
    read_ahead(data, read_state)
    assert data.fleet.read_text() == "as before"
    assert finish_joining(data, fail)
    assert data.fleet.read_text() == "the fleet's"


def test_an_installation_that_is_a_node_is_refused(asked: Asked, data: DataDir) -> None:
    ask_to_join(data, asked.token().text, "node-1")
    finish_joining(data, read_state)
    with pytest.raises(JoinRefused, match="is a node of a fleet already"):
        ask_to_join(data, asked.token().text, "node-2")


def test_no_node_at_the_address_is_said_so(asked: Asked, data: DataDir) -> None:
    line = asked.token()
    wrong = TokenLine(line.fingerprint, line.id, line.secret, "127.0.0.1:1")
    with pytest.raises(NodeUnreachable, match=r"127\.0\.0\.1:1"):
        ask_to_join(data, wrong.text)


def test_what_would_be_lost_is_named(data: DataDir) -> None:
    with closing(Engine(data, secret_box_of(data))) as engine:
        engine.put("users", {"id": "usr_a", "username": "admin"}, 0)
        assert what_is_there(engine) == []
        engine.put("users", {"id": "usr_b", "username": "alice"}, 0)
        engine.put("proxies", {"id": "prx_a", "name": "a"}, 0)
        assert what_is_there(engine) == ["1 proxy", "1 user"]
