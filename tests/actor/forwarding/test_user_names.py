"""User names with parameters at a real actor: who it is, which upstream it is, and what is seen of it."""

from __future__ import annotations

import itertools
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from actors.bus.messages.forwarding import ConnectionFilter, Explain, RequestExplanation
from actors.bus.messages.specs import PolicySpec, PoolSpec, RuleSpec, UpstreamsSpec, UsernameParamsSpec
from actors.forwarding.fleet_objects import FleetObjects
from actors.logs.record_schema import valid_rows
from tests.actor.forwarding.account_client import WORD, account, credentials
from tests.actor.forwarding.connection_pages import page
from tests.actor.forwarding.http_client import connect, get, read_response
from tests.actor.forwarding.shared_accounts import AccountsTable, bearer, fetch, socks5_status, tunnel
from tests.actor.forwarding.socks_client import exactly
from tests.kit.auth_backends import PRIVATE_ALLOWED, AuthBackend
from tests.kit.certificates import make_pair
from tests.kit.curl import curl, needs_curl
from tests.kit.forwarding_rig import Rig
from tests.kit.scripted_origins import Origin, Script, counted, echoes, read_head
from tests.kit.tables import table
from tests.kit.upstreams import upstream_entry, upstream_list

ON, STRICT = UsernameParamsSpec(), UsernameParamsSpec(reject_unknown=True)
URL = "http://target.example/"
COUNTRIES = ("de", "de", "fr", "us")


def numbered(number: int) -> Script:
    """An upstream that takes CONNECT as well, and responds with its number to every request."""

    def script(sock: socket.socket) -> None:
        while head := read_head(sock):
            sock.sendall(b"HTTP/1.1 200 OK\r\n\r\n" if head.startswith(b"CONNECT") else counted(b"%d" % number))

    return script


@pytest.fixture(scope="module")
def exits() -> Iterator[list[Origin]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Origin(numbered(number))) for number in range(4)]


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return make_pair(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def shared(tls: tuple[str, str]) -> Iterator[Rig]:
    with Rig(egress=PRIVATE_ALLOWED, protocol="mixed", tls=tls) as rig:
        yield rig


@pytest.fixture(scope="module")
def written(shared: Rig) -> Iterator[AccountsTable]:
    table = AccountsTable(shared)
    yield table
    table.close()


@pytest.fixture
def rig(shared: Rig, written: AccountsTable, exits: list[Origin]) -> Rig:
    """All protocols, with the account `alice` of its own, over four upstreams in turn."""
    written.clear()
    shared.configure(
        FleetObjects(),
        auth_required=True,
        accounts=(account("alice"),),
        backend=None,
        policy="",
        pool="",
        username_params=ON,
        upstreams=upstream_list(*(upstream_entry(each.port) for each in exits), policy="round_robin"),
    )
    shared.records.clear()
    return shared


def ways(rig: Rig, tls: tuple[str, str], user: str, word: str = WORD) -> dict[str, list[str]]:
    """The arguments with which curl uses the proxy, by protocol."""
    proxy = f"127.0.0.1:{rig.port}"
    signed = ["-U", f"{user}:{word}"]
    return {
        "http": ["-x", f"http://{proxy}", *signed],
        "tunnel": ["-p", "-x", f"http://{proxy}", *signed],
        "https": ["-x", f"https://{proxy}", "--proxy-insecure", *signed],
        "socks5": ["-x", f"socks5h://{proxy}", *signed],
        "socks4": ["-x", f"socks4a://{proxy}", *signed],
    }


def via(rig: Rig, user: str, word: str = WORD) -> str:
    """The number of the upstream that a request of this user went through, or the status of a refusal."""
    with connect(rig) as client:
        client.sendall(get(_Target(), "/", credentials(user, word)))
        head, body = read_response(client)
        return body.decode() if head.split()[1] == b"200" else head.split()[1].decode()


class _Target:
    authority = "target.example"


# --- on all protocols ---


@needs_curl
def test_a_session_has_one_upstream_on_all_protocols(rig: Rig, written: AccountsTable, tls: tuple[str, str]) -> None:
    written.account("team")
    team = written.account("team-a", socks4_by_name=True)
    for name, how in ways(rig, tls, "team-a-session-7-ttl-60-colour-blue").items():
        status, number = curl(*how, URL)
        assert (name, status) == (name, 200)
        assert curl(*how, URL) == (200, number)
        record = rig.record(user="team-a", parent=f"http-{rig.spec.upstreams.entries[int(number)].port}")
        assert record["parameters"] == "session=7 ttl=60 ?colour=blue"
    secret = written.mint(team)[1]
    by_secret = {curl("-x", f"socks4a://127.0.0.1:{rig.port}", "-U", f"{secret}-session-7:", URL)}
    assert by_secret == {curl(*ways(rig, tls, "team-a-session-7")["socks5"], URL)}
    assert via(rig, "team-a-session-7", secret) == by_secret.pop()[1]
    assert all(secret not in str(record) for record in rig.records)


@needs_curl
def test_unknown_parameters_and_what_is_none_are_refused_on_all_protocols(rig: Rig, tls: tuple[str, str]) -> None:
    rig.configure(username_params=STRICT)
    for user in ("alice-colour-blue", "alice-ttl-0", "alice-session", "alicesession-7", "bob-session-7"):
        for how in ways(rig, tls, user).values():
            assert curl(*how, URL)[0] in (407, 0), (user, how)
    assert rig.record(status_code=407, reason="unknown_parameters")["detail"].endswith("does not know: colour=blue")
    assert socks5_status(rig, "alice-colour-blue", WORD) == 1
    assert socks5_status(rig, "alice-session-7", WORD) == 0
    refused = rig.record(status_code=407, user="alice-ttl-0")
    assert (refused["reason"], refused["parameters"]) == ("http_request_denied", "")


def test_a_wrong_password_is_refused_before_the_parameters_are(rig: Rig) -> None:
    rig.configure(username_params=STRICT)
    assert via(rig, "alice-shade-blue", "wrong") == "407"
    assert rig.record(user="alice-shade-blue")["reason"] == "http_request_denied"


def test_a_bearer_has_no_parameters(rig: Rig, written: AccountsTable) -> None:
    secret = written.mint(written.account("carol"))[1]
    assert fetch(rig, _Target(), bearer(secret))[0] == 200
    assert fetch(rig, _Target(), bearer(f"{secret}-session-7"))[0] == 407


def test_an_account_of_exactly_that_name_comes_first(rig: Rig, written: AccountsTable) -> None:
    assert via(rig, "alice-session-7") in "0123"
    assert rig.record(user="alice", parameters="session=7 ttl=600")
    exact = written.account("alice-session-7")
    assert via(rig, "alice-session-7") in "0123"
    assert rig.record(user="alice-session-7", parameters="")
    written.remove(exact)
    rig.records.clear()
    assert via(rig, "alice-session-7") in "0123"
    assert rig.record(user="alice", parameters="session=7 ttl=600")


def test_another_separator(rig: Rig) -> None:
    rig.configure(username_params=UsernameParamsSpec("+"), accounts=(account("new-york"),))
    assert via(rig, "new-york+city+new-york") == "502"
    assert via(rig, "new-york-session-7") == "407"
    assert rig.record(user="new-york")["parameters"] == "city=new-york"


# --- without accounts, and with a back end ---


@needs_curl
def test_without_credentials_the_first_known_parameter_ends_the_name(rig: Rig, tls: tuple[str, str]) -> None:
    rig.configure(auth_required=False, accounts=())
    found = {name: curl(*how, URL) for name, how in ways(rig, tls, "any-one-session-9", "x").items()}
    assert len(set(found.values())) == 1, found
    numbers = {session: via(rig, f"any-one-session-{session}") for session in range(20)}
    assert len(set(numbers.values())) > 1
    assert numbers == {session: via(rig, f"any-one-session-{session}") for session in range(20)}
    assert rig.record(parameters="session=3 ttl=600")["user"] == ""
    rig.configure(username_params=STRICT)
    assert via(rig, "x-session-1-colour-blue") == "407"


def test_a_back_end_gets_the_account_alone(rig: Rig) -> None:
    with AuthBackend(lambda content: {"allow": content["username"] in ("bob", "bob-x")}) as backend:
        rig.configure(backend=backend.spec())
        assert via(rig, "bob-session-7", "pw") in "0123"
        assert via(rig, "bob-x-country-mars", "pw") == "502"
        assert via(rig, "bob-colour-blue", "pw") == "407"
        assert [each.content["username"] for each in backend.received] == ["bob", "bob-x", "bob-colour-blue"]
        assert rig.record(user="bob")["parameters"] == "session=7 ttl=600"


# --- which upstream ---


def test_sessions_spread_and_stay_whatever_the_policy_is(rig: Rig) -> None:
    for policy in ("failover", "least_connections", "sticky"):
        rig.configure(upstreams=UpstreamsSpec(rig.spec.upstreams.entries, policy, check_enabled=False))
        numbers = {session: via(rig, f"alice-session-{session}") for session in range(40)}
        assert len(set(numbers.values())) > 2
        assert numbers == {session: via(rig, f"alice-session-{session}") for session in range(40)}


def test_rotation_takes_another_each_time_and_moves_a_session_once(rig: Rig) -> None:
    rotated = [via(rig, "alice-rotate") for _ in range(8)]
    assert all(one != next_one for one, next_one in itertools.pairwise(rotated))
    before = via(rig, "alice-session-7")
    moved = via(rig, "alice-session-7-rotate")
    assert moved != before
    assert {via(rig, "alice-session-7") for _ in range(5)} == {moved}


def test_a_session_whose_upstream_fails_gets_another_and_stays_there(rig: Rig, exits: list[Origin]) -> None:
    with Origin(numbered(9)) as mortal:
        entries = upstream_entry(exits[0].port), upstream_entry(mortal.port), upstream_entry(exits[1].port)
        rig.configure(upstreams=upstream_list(*entries))
        before = {session: via(rig, f"alice-session-{session}") for session in range(60)}
    bereft = [session for session, number in before.items() if number == "9"]
    assert bereft
    after = {session: via(rig, f"alice-session-{session}") for session in range(60)}
    assert {after[session] for session in bereft} <= {"0", "1"}
    assert all(after[session] == before[session] for session in before if session not in bereft)
    rig.configure(upstreams=upstream_list(entries[0], entries[2], upstream_entry(exits[2].port)))
    assert all(via(rig, f"alice-session-{session}") == after[session] for session in bereft)


def labelled(exits: list[Origin], name: str = "paris") -> PoolSpec:
    entries = [
        upstream_entry(each.port, labels=(("country", country),))
        for each, country in zip(exits, COUNTRIES, strict=True)
    ]
    return PoolSpec(f"pool_{name}", name, 1, upstream_list(*entries, policy="round_robin"))


def test_labels_choose_within_a_pool_and_sessions_stay_within_them(rig: Rig, exits: list[Origin]) -> None:
    rig.configure(FleetObjects(pools=(labelled(exits),)), pool="paris", upstreams=UpstreamsSpec())
    assert {via(rig, "alice-country-fr") for _ in range(4)} == {"2"}
    assert {via(rig, "alice-country-de-rotate") for _ in range(4)} == {"0", "1"}
    sessions = {session: via(rig, f"alice-session-{session}-country-de") for session in range(40)}
    assert set(sessions.values()) == {"0", "1"}
    assert sessions == {session: via(rig, f"alice-session-{session}-country-de") for session in range(40)}
    assert via(rig, "alice-country-mars") == "502"
    assert rig.record(status_code=502, reason="no_upstream_matches")


def test_two_proxies_of_one_pool_choose_alike(rig: Rig, exits: list[Origin]) -> None:
    pools = FleetObjects(pools=(labelled(exits),))
    rig.configure(pools, pool="paris", upstreams=UpstreamsSpec())
    with Rig(id="px-other", auth_required=True, accounts=(account("alice"),), username_params=ON) as other:
        other.configure(pools, pool="paris")
        for session in range(12):
            assert via(rig, f"alice-session-{session}") == via(other, f"alice-session-{session}")


# --- rules, and what is seen ---


def rules(*given: RuleSpec) -> FleetObjects:
    return FleetObjects(policies=(PolicySpec("policy_1", "by-params", given),))


DENY_GOLD = RuleSpec("not gold", params=(("tier", "gold"),), use="deny")


@needs_curl
def test_rules_match_parameters_on_all_protocols(rig: Rig, written: AccountsTable, tls: tuple[str, str]) -> None:
    written.account("team", socks4_by_name=True)
    rig.configure(rules(DENY_GOLD), policy="by-params", username_params=STRICT)
    for user, expected in (("team-tier-gold", False), ("team-tier-lead", True), ("team", True)):
        for name, how in ways(rig, tls, user).items():
            assert (curl(*how, URL)[0] == 200) is expected, (user, name)
    assert rig.record(reason="policy_denied", user="team", parameters="tier=gold")


def test_a_tunnel_is_judged_by_its_parameters_when_policies_change(rig: Rig) -> None:
    with Origin(echoes) as target:
        rig.configure(
            rules(RuleSpec("else", params=(("tier", "x"),), use="deny")), policy="by-params", upstreams=UpstreamsSpec()
        )
        with (
            tunnel(rig, target, credentials("alice-tier-gold")) as gold,
            tunnel(rig, target, credentials("alice")) as plain,
        ):
            ended = FleetObjects(policies=(PolicySpec("policy_1", "by-params", (DENY_GOLD,), 2, 1),))
            rig.configure(ended)
            gold.settimeout(20)
            assert gold.recv(10) == b""
            plain.sendall(b"hello")
            assert plain.recv(10) == b"hello"


def test_live_connections_show_what_was_understood(rig: Rig) -> None:
    with Origin(echoes) as target:
        rig.configure(upstreams=UpstreamsSpec())
        with tunnel(rig, target, credentials("alice-session-a b-colour-blue")):
            (found,) = page(rig, ConnectionFilter(target=target.authority)).connections
    assert (found.user, found.parameters) == ("alice", "session=a%20b ttl=600 ?colour=blue")


def test_an_association_shows_what_was_understood(rig: Rig) -> None:
    rig.configure(upstreams=UpstreamsSpec())
    user, word = b"alice-session-7", WORD.encode()
    with connect(rig) as control:
        control.sendall(b"\x05\x01\x02")
        assert exactly(control, 2) == b"\x05\x02"
        control.sendall(bytes((1, len(user))) + user + bytes((len(word),)) + word)
        assert exactly(control, 2) == b"\x01\x00"
        control.sendall(b"\x05\x03\x00\x01" + bytes(6))
        assert exactly(control, 10)[:2] == b"\x05\x00"
        (found,) = (each for each in page(rig).connections if each.state == "datagrams")
        assert (found.user, found.parameters) == ("alice", "session=7 ttl=600")
    assert rig.record(user="alice", parameters="session=7 ttl=600")


def explain(rig: Rig, user: str) -> RequestExplanation:
    reply = rig.ask(Explain("127.0.0.1", user, "http://127.0.0.1/"))
    assert isinstance(reply, RequestExplanation)
    return reply


def test_explain_says_how_a_name_is_understood(rig: Rig) -> None:
    rig.configure(rules(DENY_GOLD), policy="by-params")
    found = explain(rig, "alice-session-7-tier-gold-rotate-colour-blue")
    assert (found.decision, found.stage, found.account) == ("deny", "policy", "acc_alice")
    assert found.name is not None
    assert (found.name.account, found.name.session, found.name.rotate) == ("alice", "7", True)
    assert (found.name.marks, found.name.unknown) == ({"tier": "gold"}, ("colour=blue",))
    assert [each.why for each in explain(rig, "alice-country-de").rules] == ["params: country=de is not all of them"]
    assert [each.why for each in explain(rig, "alice").rules] == ["params: the user name has none"]
    assert explain(rig, "alice").name is None
    wrong = explain(rig, "alice-ttl-0")
    assert wrong.decision == "deny"
    assert "ttl is seconds, 1 to 86400" in wrong.rule
    rig.configure(username_params=STRICT)
    strict = explain(rig, "alice-colour-blue")
    assert (strict.decision, strict.reason) == ("deny", "unknown_parameters")


# --- attacks ---

HOSTILE = ("\r\nX-Evil: 1", "\n", "\x00", "\x1b[2J", "\u2028", "\u202egnp", "%0d%0aX: y", '" ; x="', "=?", "x" * 5000)


@table("hostile", HOSTILE)
@table("where", ["session-{}", "{}-7", "country-{}", "session-7-{}"])
def test_nothing_of_a_name_gets_into_a_header_or_forges_a_record(rig: Rig, hostile: str, where: str) -> None:
    heads: list[bytes] = []

    def notes(sock: socket.socket) -> None:
        while head := read_head(sock):
            heads.append(head)
            sock.sendall(counted(b"0"))

    with Origin(notes) as upstream:
        rig.configure(upstreams=upstream_list(upstream_entry(upstream.port)))
        with connect(rig) as client:
            client.sendall(get(_Target(), "/", credentials("alice-" + where.format(hostile))))
            head, _body = read_response(client)
    assert head.split()[1] in (b"200", b"407", b"502")
    assert not [each for each in (head, *heads) if b"Evil" in each or b"alice" in each]
    record = rig.record(method="GET")
    (row,) = valid_rows([list(record.values())])  # as it is stored: a name that was refused is in `user`
    assert all(value.isprintable() for value in row if isinstance(value, str))
    assert record["parameters"].isprintable()
    assert len(record["parameters"]) < 1000
