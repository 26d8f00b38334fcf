"""What the resolver believes of responses, how long it keeps them, and what it makes of servers that lie or break."""

from __future__ import annotations

import threading

import dns.flags
import dns.message
import dns.name
import dns.rdatatype
import pytest

from actors.net.resolver_protocol import FAILED, FOUND, NEGATIVE, TIMED_OUT
from actors.resolver import questions
from actors.resolver.servers import NO_EDNS_FOR
from tests.actor.resolver.resolving import Resolving
from tests.kit.name_servers import ScriptedNameServer, negative, records, zone
from tests.kit.tables import table
from tests.kit.wait import wait_until

NAME = "www.example.com"
BOTH = ("2001:db8::1", "192.0.2.1")


@pytest.fixture(autouse=True)
def no_query_is_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are counted here, also where the name server takes a second to get its turn."""
    monkeypatch.setattr(questions, "AGAIN_AFTER", 100.0)


def test_a_name_has_the_addresses_of_both_families(resolving: Resolving) -> None:
    with ScriptedNameServer(zone({NAME: BOTH})) as server:
        reply = resolving.resolve(resolving.profile(server.address), NAME)
        assert (reply.status, reply.content) == (FOUND, BOTH)
        assert sorted(kind for _name, kind, _transport in server.queries) == ["A", "AAAA"]


def test_a_result_is_kept_for_its_time_to_live_and_no_longer(resolving: Resolving) -> None:
    with ScriptedNameServer(zone({NAME: BOTH}, ttl=60)) as server:
        profile = resolving.profile(server.address)
        resolving.resolve(profile, NAME)
        resolving.skip(55.0)
        assert resolving.resolve(profile, NAME).content == BOTH
        assert len(server.queries) == 2
        resolving.skip(6.0)
        assert resolving.resolve(profile, NAME).content == BOTH
        assert len(server.queries) == 4


@table(("limits", "kept", "gone"), [({"min_ttl": 100}, 95.0, 6.0), ({"max_ttl": 10}, 8.0, 3.0)])
def test_min_ttl_and_max_ttl_bound_it(resolving: Resolving, limits: dict[str, int], kept: float, gone: float) -> None:
    with ScriptedNameServer(zone({NAME: BOTH}, ttl=60)) as server:
        profile = resolving.profile(server.address, **limits)
        resolving.resolve(profile, NAME)
        resolving.skip(kept)
        resolving.resolve(profile, NAME)
        assert len(server.queries) == 2
        resolving.skip(gone)
        resolving.resolve(profile, NAME)
        assert len(server.queries) == 4


@table("code", [0, 3])
def test_that_there_is_none_is_kept_as_the_soa_record_says(resolving: Resolving, code: int) -> None:
    with ScriptedNameServer(lambda query, _: negative(query, code, minimum=20, ttl=900)) as server:
        profile = resolving.profile(server.address)
        assert resolving.resolve(profile, NAME).status == NEGATIVE
        wait_until(lambda: len(server.queries) == 2, "both kinds are asked for")  # one that has no name is enough
        asked = len(server.queries)
        resolving.skip(18.0)
        assert resolving.resolve(profile, NAME).status == NEGATIVE
        assert len(server.queries) == asked
        resolving.skip(3.0)
        resolving.resolve(profile, NAME)
        assert len(server.queries) > asked


def test_that_there_is_none_is_not_kept_without_a_soa_record(resolving: Resolving) -> None:
    with ScriptedNameServer(lambda query, _: negative(query, 3, minimum=None)) as server:
        profile = resolving.profile(server.address)
        resolving.resolve(profile, NAME)
        asked = len(server.queries)
        resolving.resolve(profile, NAME)
        assert len(server.queries) > asked


def test_requests_at_the_same_time_are_one_query_of_each_kind(resolving: Resolving) -> None:
    with ScriptedNameServer(zone({NAME: BOTH})) as server:
        assert resolving.addresses(resolving.profile(server.address), [NAME] * 50) == [BOTH] * 50
        assert len(server.queries) == 2


def test_queries_have_letters_in_random_case_and_ports_of_their_own(resolving: Resolving) -> None:
    names = [f"abcdefghijklmnop{number}.example.com" for number in range(40)]
    with ScriptedNameServer(zone({"*": BOTH})) as server:
        resolving.addresses(resolving.profile(server.address), names)
        assert sum(name == name.lower() for name, _kind, _transport in server.queries) < 4
        assert len(set(server.sources)) > 60


def forged(query: dns.message.Message, what: str) -> bytes:
    """A response with another address that differs in one point from a good one."""
    response = dns.message.from_wire(
        records(query, (query.question[0].name.to_text(), 60, "A", "203.0.113.66")).to_wire()
    )
    if what == "id":
        response.id = (query.id + 1) % 65536
    elif what == "question":
        response.question[0].name = dns.name.from_text("www.example.net")
    wire = response.to_wire()
    return wire[:20] if what == "malformed" else wire


@pytest.mark.parametrize("what", ["id", "question", "malformed"])
def test_a_forged_response_is_dropped_and_counted_and_the_right_one_counts(resolving: Resolving, what: str) -> None:
    honest = zone({NAME: ("192.0.2.1",)})

    def handle(query: dns.message.Message, transport: str) -> list[bytes]:
        good = honest(query, transport)
        assert isinstance(good, dns.message.Message)
        return (
            [forged(query, what), good.to_wire()] if query.question[0].rdtype == dns.rdatatype.A else [good.to_wire()]
        )

    with ScriptedNameServer(handle) as server:
        assert resolving.resolve(resolving.profile(server.address), NAME).content == ("192.0.2.1",)
        assert resolving.service.counts.dropped.total() == 1


def test_a_server_that_changes_letters_is_asked_by_tcp_and_then_in_low_case(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, transport: str) -> dns.message.Message:
        query.question[0].name = dns.name.from_text(query.question[0].name.to_text().lower())
        response = zone({"*": ("192.0.2.1",)})(query, transport)
        assert isinstance(response, dns.message.Message)
        return response

    with ScriptedNameServer(handle) as server:
        profile = resolving.profile(server.address)
        assert resolving.resolve(profile, NAME).content == ("192.0.2.1",)
        assert {transport for _name, _kind, transport in server.queries} == {"udp", "tcp"}
        seen = len(server.queries)
        assert resolving.resolve(profile, "other.example.com").content == ("192.0.2.1",)
        assert [(name, transport) for name, _kind, transport in server.queries[seen:]] == [
            ("other.example.com", "udp")
        ] * 2


def test_a_truncated_response_is_asked_for_again_by_tcp(resolving: Resolving) -> None:
    many = tuple(f"192.0.2.{number}" for number in range(1, 30))

    def handle(query: dns.message.Message, transport: str) -> dns.message.Message:
        response = zone({NAME: many})(query, transport)
        assert isinstance(response, dns.message.Message)
        if transport == "udp" and query.question[0].rdtype == dns.rdatatype.A:
            response.answer.clear()
            response.flags |= dns.flags.TC
        return response

    with ScriptedNameServer(handle) as server:
        assert resolving.resolve(resolving.profile(server.address), NAME).content == many
        assert [kind for _name, kind, transport in server.queries if transport == "tcp"] == ["A"]


def test_a_response_that_is_longer_than_asked_for_is_dropped_and_asked_for_by_tcp(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, transport: str) -> bytes:
        response = zone({NAME: ("192.0.2.1",)})(query, transport)
        assert isinstance(response, dns.message.Message)
        return response.to_wire() + bytes(1300 if transport == "udp" else 0)

    with ScriptedNameServer(handle) as server:
        assert resolving.resolve(resolving.profile(server.address), NAME).content == ("192.0.2.1",)
        assert resolving.service.counts.dropped["overlong"] == 2


def test_a_response_by_tcp_that_is_too_long_fails(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, transport: str) -> bytes | dns.message.Message:
        if transport == "tcp":
            return bytes(20_000)
        response = records(query)
        response.flags |= dns.flags.TC
        return response

    with ScriptedNameServer(handle) as server:
        reply = resolving.resolve(resolving.profile(server.address), NAME)
        assert reply.status == FAILED
        assert "too long" in reply.content


def test_only_addresses_count_that_the_name_leads_to(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, _transport: str) -> dns.message.Message:
        kind = dns.rdatatype.to_text(query.question[0].rdtype)
        if kind == "AAAA":
            return negative(query, 0, 60)
        return records(
            query,
            ("victim.example.net.", 600, "A", "203.0.113.66"),
            (f"{NAME}.", 60, "CNAME", "web.example.com."),
            ("web.example.com.", 30, "A", "192.0.2.1"),
        )

    with ScriptedNameServer(handle) as server:
        profile = resolving.profile(server.address)
        reply = resolving.resolve(profile, NAME)
        assert reply.content == ("192.0.2.1",)
        assert 25 < reply.until - resolving.loop.now <= 30
        assert list(resolving.service.cache.entries(resolving.loop.now, "victim.example.net")) == []


def test_an_alias_that_the_server_has_not_followed_is_followed(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, transport: str) -> dns.message.Message:
        name = query.question[0].name.to_text().lower()
        if name == f"{NAME}.":
            return records(query, (name, 60, "CNAME", "web.example.net."))
        response = zone({"web.example.net": ("192.0.2.9",)})(query, transport)
        assert isinstance(response, dns.message.Message)
        return response

    with ScriptedNameServer(handle) as server:
        assert resolving.resolve(resolving.profile(server.address), NAME).content == ("192.0.2.9",)


def test_a_name_and_its_aliases_have_one_deadline(resolving: Resolving) -> None:
    released = threading.Event()

    def handle(query: dns.message.Message, _transport: str) -> dns.message.Message | None:
        name = query.question[0].name.to_text().lower()
        if name != f"{NAME}.":
            return None
        released.wait(120)
        return records(query, (name, 60, "CNAME", "web.example.net."))

    with ScriptedNameServer(handle) as server:
        replies = resolving.begin(resolving.profile(server.address), NAME)
        resolving.turn_until(lambda: server.queries)
        resolving.skip(6.0)
        released.set()
        resolving.turn_until(lambda: len(server.asked("web.example.net")) == 2)
        resolving.skip(4.5)
        resolving.turn_until(lambda: resolving.loop.now)
        assert [each.status for each in replies] == [TIMED_OUT]


@table("length", [2, 30])
def test_a_loop_and_a_long_chain_of_aliases_fail(resolving: Resolving, length: int) -> None:
    names = [NAME, *(f"a{number}.example.com" for number in range(1, length))]
    following = dict(zip(names, [*names[1:], names[0]], strict=True))

    def handle(query: dns.message.Message, _transport: str) -> dns.message.Message:
        name = query.question[0].name.to_text().rstrip(".").lower()
        return records(query, (f"{name}.", 60, "CNAME", f"{following[name]}."))

    with ScriptedNameServer(handle) as server:
        reply = resolving.resolve(resolving.profile(server.address), NAME)
        assert reply.status == FAILED
        assert "loop" in reply.content
        assert len(server.queries) <= 30


def test_a_whole_loop_of_aliases_in_one_response_fails(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, _transport: str) -> dns.message.Message:
        lines = [(f"{NAME}.", 60, "CNAME", "b.example.com."), ("b.example.com.", 60, "CNAME", f"{NAME}.")]
        return records(query, *lines)

    with ScriptedNameServer(handle) as server:
        assert "loop" in resolving.resolve(resolving.profile(server.address), NAME).content


def test_a_server_that_knows_no_edns_is_asked_without_it_for_a_while(resolving: Resolving) -> None:
    def handle(query: dns.message.Message, transport: str) -> dns.message.Message:
        if query.edns < 0:
            response = zone({"*": ("192.0.2.1",)})(query, transport)
            assert isinstance(response, dns.message.Message)
            return response
        response = dns.message.make_response(query)
        response.use_edns(-1)
        response.set_rcode(1)
        return response

    with ScriptedNameServer(handle) as server:
        profile = resolving.profile(server.address)
        assert resolving.resolve(profile, NAME).content == ("192.0.2.1",)
        seen = len(server.queries)
        resolving.resolve(profile, "b.example.com")
        assert len(server.queries) == seen + 2
        resolving.skip(NO_EDNS_FOR + 1.0)
        assert resolving.resolve(profile, "c.example.com").content == ("192.0.2.1",)
        assert len(server.queries) > seen + 4, "it was tried again with EDNS"


@table("name", ["a..b", "x" * 64 + ".example", "\u00fc.example", ".".join(["abcdefgh"] * 40)])
def test_what_is_no_name_is_not_asked_for(resolving: Resolving, name: str) -> None:
    with ScriptedNameServer(zone({"*": BOTH})) as server:
        assert resolving.resolve(resolving.profile(server.address), name).status == NEGATIVE
        assert server.queries == []


@table("name", ["host.invalid", "abc.onion"])
def test_names_that_are_never_in_the_dns_are_not_asked_for(resolving: Resolving, name: str) -> None:
    with ScriptedNameServer(zone({"*": BOTH})) as server:
        assert resolving.resolve(resolving.profile(server.address), name).status == NEGATIVE
        assert server.queries == []
