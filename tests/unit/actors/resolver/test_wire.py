"""The wire format of the resolver against dnspython: what it sends is read there, and what is sent there is read here.

Whatever else comes is refused by `Bogus`, the one exception that its callers know.
"""

from __future__ import annotations

import random
import string
from collections.abc import Sequence
from ipaddress import ip_address
from itertools import pairwise

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from actors.resolver.wire import (
    AAAA,
    ADDRESSES_MAX,
    ALIASES_MAX,
    NXDOMAIN,
    TTL_MAX,
    A,
    Bogus,
    DnsQuery,
    DnsResponse,
    NotAName,
    OtherCase,
    new_query,
    pack_name,
    read_response,
)

NUMBER = 4711
LABELS = st.text(string.ascii_lowercase + string.digits + "-_", min_size=1, max_size=63)
NAMES = st.lists(LABELS, min_size=1, max_size=5).map(".".join).filter(lambda name: len(name) <= 253)
KINDS = st.sampled_from([A, AAAA])
IPV4 = st.ip_addresses(v=4).map(str)
IPV6 = st.ip_addresses(v=6).map(str)
TTLS = st.integers(0, 2**31 - 1)


def response_to(query: DnsQuery, *records: tuple[str, int, str, str], code: int = 0) -> dns.message.Message:
    """A response of dnspython's with these records (owner, TTL, type, data) as its answer."""
    message = dns.message.make_response(dns.message.from_wire(query.with_id(NUMBER)))
    message.set_rcode(dns.rcode.Rcode(code))
    for owner, ttl, kind, data in records:
        message.answer.append(dns.rrset.from_text(f"{owner}.", ttl, "IN", kind, data))
    return message


def read(message: dns.message.Message | bytes, query: DnsQuery) -> DnsResponse:
    return read_response(message if isinstance(message, bytes) else message.to_wire(), query, NUMBER)


@given(NAMES, KINDS, st.booleans(), st.booleans())
def test_a_query_is_read_as_what_it_asks(name: str, kind: int, mixed: bool, edns: bool) -> None:
    message = dns.message.from_wire(new_query(name, kind, mixed, edns).with_id(NUMBER))
    question = message.question[0]
    assert (message.id, message.edns, message.opcode()) == (NUMBER, 0 if edns else -1, dns.opcode.QUERY)
    assert message.flags == dns.flags.RD
    assert (question.name.to_text(omit_final_dot=True).lower(), question.rdtype) == (name, kind)
    assert mixed or question.name.to_text(omit_final_dot=True) == name


@given(st.text(max_size=300))
def test_a_name_is_packed_as_by_dnspython_or_refused(text: str) -> None:
    try:
        packed = pack_name(text)
    except NotAName:
        return
    assert dns.name.from_wire(packed, 0)[0].labels == (*(each.encode() for each in text.split(".")), b"")


@given(NAMES, KINDS, st.data(), TTLS)
def test_addresses_are_read_as_they_were_written(name: str, kind: int, data: st.DataObject, ttl: int) -> None:
    addresses = data.draw(st.lists(IPV4 if kind == A else IPV6, min_size=1, max_size=40, unique=True))
    query = new_query(name, kind)
    written = [(name, ttl, "A" if kind == A else "AAAA", each) for each in addresses]
    found = read(response_to(query, *written), query)
    assert (found.code, found.truncated, found.alias, found.ttl) == (0, False, "", min(ttl, TTL_MAX))
    assert [ip_address(each) for each in found.addresses] == [ip_address(each) for each in addresses[:ADDRESSES_MAX]]


@given(st.lists(NAMES, min_size=2, max_size=ALIASES_MAX, unique=True), IPV4, st.randoms(), st.lists(TTLS, min_size=13))
def test_a_chain_of_aliases_is_followed_in_any_order(
    names: list[str], address: str, order: random.Random, ttls: list[int]
) -> None:
    query = new_query(names[0], A)
    records = [
        *((name, ttl, "CNAME", f"{after}.") for name, after, ttl in zip(names, names[1:], ttls, strict=False)),
        (names[-1], ttls[-1], "A", address),
    ]
    least = min(TTL_MAX, *(ttl for _owner, ttl, _kind, _data in records))
    order.shuffle(records)
    found = read(response_to(query, *records), query)
    assert (found.addresses, found.ttl) == ((address,), least)
    unfinished = read(response_to(query, *(each for each in records if each[2] == "CNAME")), query)
    assert (unfinished.addresses, unfinished.alias) == ((), names[-1])


@given(st.lists(NAMES, min_size=1, max_size=8, unique=True), st.data())
def test_aliases_that_lead_back_are_a_loop(names: list[str], data: st.DataObject) -> None:
    query = new_query(names[0], A)
    back = data.draw(st.sampled_from(names))
    records = [(name, 60, "CNAME", f"{after}.") for name, after in zip(names, [*names[1:], back], strict=True)]
    with pytest.raises(Bogus, match="alias_loop"):
        read(response_to(query, *records), query)


@given(NAMES, NAMES, IPV4, IPV4)
def test_of_other_names_nothing_is_believed(name: str, other: str, address: str, forged: str) -> None:
    assume(name != other)
    query = new_query(name, A)
    found = read(response_to(query, (other, 60, "A", forged), (name, 60, "A", address)), query)
    assert found.addresses == (address,)
    assert read(response_to(query, (other, 60, "A", forged)), query).addresses == ()


@given(NAMES, KINDS, TTLS, TTLS, st.sampled_from([0, NXDOMAIN]))
def test_a_negative_response_holds_as_its_soa_says(name: str, kind: int, ttl: int, minimum: int, code: int) -> None:
    query = new_query(name, kind)
    message = response_to(query, code=code)
    message.authority.append(dns.rrset.from_text("example.", ttl, "IN", "SOA", f"a. b. 1 2 3 4 {minimum}"))
    found = read(message, query)
    assert (found.code, found.addresses, found.negative_ttl) == (code, (), min(ttl, TTL_MAX, minimum))


@given(NAMES, KINDS, NAMES, KINDS, IPV4, st.integers(0, 65535))
def test_a_response_to_another_question_or_id_is_refused(
    name: str, kind: int, other: str, other_kind: int, address: str, number: int
) -> None:
    query, another = new_query(name, kind), new_query(other, other_kind)
    assume((name, kind) != (other, other_kind))
    records = [(other, 60, "A", address), (name, 60, "A", address)]
    with pytest.raises(Bogus):
        read(response_to(another, *records), query)
    message = response_to(query, *records)
    message.id = number
    if number != NUMBER:
        with pytest.raises(Bogus, match="id"):
            read(message, query)


@given(st.text(string.ascii_lowercase, min_size=16, max_size=40), IPV4)
def test_a_response_in_other_letters_is_known_as_such(name: str, address: str) -> None:
    query = new_query(name, A)
    assume(query.question != query.question.lower())
    message = response_to(query, (name, 60, "A", address))
    message.question[0].name = dns.name.from_text(name)
    with pytest.raises(OtherCase):
        read(message, query)


def changed(wire: bytes, edits: Sequence[tuple[int, int]], cut: int, more: bytes) -> bytes:
    """With some bytes set, cut short and made longer."""
    data = bytearray(wire)
    for place, value in edits:
        data[place % len(data)] = value
    return bytes(data[: len(data) - cut % len(data)]) + more


EDITS = st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 255)), max_size=8)


@given(
    NAMES, st.lists(NAMES, max_size=4), st.lists(IPV4, max_size=4), EDITS, st.integers(0, 4096), st.binary(max_size=20)
)
def test_a_spoiled_response_is_refused_or_is_one_to_the_question(
    name: str, aliases: list[str], addresses: list[str], edits: list[tuple[int, int]], cut: int, more: bytes
) -> None:
    query = new_query(name, A)
    chain = [name, *aliases]
    records = [(owner, 60, "CNAME", f"{after}.") for owner, after in pairwise(chain)]
    records += [(chain[-1], 60, "A", each) for each in addresses]
    message = changed(response_to(query, *records).to_wire(), edits, cut * (cut % 3 == 0), more)
    try:
        found = read(message, query)
    except Bogus:
        return
    assert message[:2] == NUMBER.to_bytes(2, "big")
    assert message[2] & 0xF8 == 0x80, "a response to a query"
    if found.addresses or found.alias:
        assert message[12:].startswith(query.question)
    assert len(found.addresses) <= ADDRESSES_MAX
    assert 0 <= found.ttl <= TTL_MAX


@given(st.binary(max_size=600), NAMES, KINDS)
def test_whatever_comes_is_refused_or_says_nothing(data: bytes, name: str, kind: int) -> None:
    query = new_query(name, kind)
    for message in (data, NUMBER.to_bytes(2, "big") + data, query.with_id(NUMBER) + data):
        try:
            assert read(message, query).addresses == ()
        except Bogus:
            continue


@given(NAMES, st.binary(max_size=600))
def test_whatever_follows_the_question_is_read_or_refused(name: str, data: bytes) -> None:
    query = new_query(name, A)
    head = NUMBER.to_bytes(2, "big") + b"\x81\x80" + b"\0\1" + b"\0\7" + b"\0\3" + b"\0\0"
    try:
        read(head + query.question + data, query)
    except Bogus:
        return


def test_names_of_more_labels_than_any_response_needs_are_refused() -> None:
    """Compressed, they fit into few bytes, and took half a second to read."""
    query = new_query("www.example.com", A)
    place = 12 + len(query.question)
    pointer = (0xC000 | place).to_bytes(2, "big")
    alias = b"\0\5\0\1" + bytes(4) + b"\0\2" + pointer
    head = NUMBER.to_bytes(2, "big") + b"\x81\x80\0\1" + (300).to_bytes(2, "big") + bytes(4)
    with pytest.raises(Bogus, match="overlong"):
        read(head + query.question + b"\1a" * 126 + b"\0" + alias + (pointer + alias) * 299, query)
