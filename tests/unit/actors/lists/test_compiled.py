"""Compiled lists against a plain model: the set of the entries themselves."""

from __future__ import annotations

import os
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lists.compiled import HEADER_SIZE, CompiledList, ListDamaged
from actors.lists.compiler import ListCompiler, domain_of, range_of
from tests.kit.tables import table

LABELS = st.sampled_from(["a", "b", "www", "example", "xn--80a", "com", "x-y", "_dmarc"])
NAMES = st.lists(LABELS, min_size=1, max_size=5).map(".".join)
V4 = st.builds(
    lambda number, length: f"{IPv4Address(number >> (32 - length) << (32 - length))}/{length}",
    st.integers(0, 2**32 - 1),
    st.integers(0, 32),
)
V6 = st.builds(
    lambda number, length: f"{IPv6Address(number >> (128 - length) << (128 - length))}/{length}",
    st.integers(0, 2**128 - 1),
    st.sampled_from([0, 3, 32, 48, 63, 64, 65, 96, 127, 128]),
)


def compiled(path: Path, domains: list[str], networks: list[str] = []) -> CompiledList:  # noqa: B006 - never altered
    compiler = ListCompiler()
    for name in domains:
        compiler.add_domain(domain_of(name))
    for text in networks:
        compiler.add_network(range_of(text))
    compiler.compile().write(path)
    found = CompiledList(path)
    found.verify()
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lists") / "one.list"


@given(st.lists(NAMES, max_size=30), st.lists(NAMES, max_size=20))
def test_a_domain_matches_itself_and_everything_below(file: Path, entries: list[str], names: list[str]) -> None:
    found = compiled(file, entries)
    assert found.entries == len(set(entries))
    for name in [*names, *entries, *(f"below.{each}" for each in entries)]:
        parts = name.split(".")
        ends = [".".join(parts[cut:]) for cut in range(len(parts))]
        assert found.by_name(name) == next((each for each in ends if each in entries), None)


@given(st.lists(st.one_of(V4, V6), max_size=30), st.data())
def test_the_most_specific_network_of_an_address_is_found(file: Path, entries: list[str], data: st.DataObject) -> None:
    found = compiled(file, [], entries)
    networks = [ip_network(each) for each in entries]
    assert found.entries == len(set(networks))
    edges = [address for each in networks for address in (each.network_address, each.broadcast_address)]
    beside = [type(each)(int(each) + step) for each in edges for step in (-1, 1) if 0 <= int(each) + step < 2**32]
    numbers = data.draw(st.lists(st.integers(0, 2**128 - 1), max_size=5))
    for address in (*edges, *beside, *map(IPv6Address, numbers), *(IPv4Address(each >> 96) for each in numbers)):
        having = [each for each in networks if each.version == address.version and address in each]
        best = max(having, key=lambda each: each.prefixlen, default=None)
        wanted = None if best is None else str(best).removesuffix(f"/{best.max_prefixlen}")
        assert found.by_address(address) == wanted


def test_many_domains_are_found_and_no_others(file: Path) -> None:
    entries = [f"host{number}.example{number % 50}.com" for number in range(20_000)]
    found = compiled(file, [*entries, *entries[:100]])
    assert found.entries == len(entries)
    assert all(found.by_name(each) == each and found.by_name(f"www.{each}") == each for each in entries[::7])
    assert not any(found.by_name(f"other{number}.example{number % 50}.com") for number in range(5_000))
    assert file.stat().st_size < 16 * len(entries)


def test_an_empty_list_matches_nothing(file: Path) -> None:
    found = compiled(file, [])
    assert found.entries == 0
    assert found.by_name("example.com") is None
    assert found.by_address(ip_address("192.0.2.1")) is None
    assert found.by_address(ip_address("2001:db8::1")) is None


def test_names_that_only_look_alike_are_others(file: Path) -> None:
    found = compiled(file, ["apple.com", "b\u00fccher.de"])
    assert found.by_name("www.apple.com") == "apple.com"
    assert found.by_name(domain_of("\u0430pple.com")) is None  # the first letter is Cyrillic
    assert found.by_name(domain_of("\uff41pple.com")) == "apple.com"  # a wide letter is the same one (UTS 46)
    assert found.by_name("xn--bcher-kva.de") == "xn--bcher-kva.de"
    assert found.by_name("notapple.com") is None
    assert found.by_name("apple.com.evil.net") is None
    assert found.by_name("\u0430pple.com") is None


def test_a_file_that_is_replaced_stays_what_it_was_for_those_who_have_it(file: Path) -> None:
    before = compiled(file, ["old.com"])
    after = compiled(file, ["new.com"])
    assert (before.by_name("old.com"), before.by_name("new.com")) == ("old.com", None)
    assert (after.by_name("old.com"), after.by_name("new.com")) == (None, "new.com")
    assert before.identity != after.identity
    assert os.listdir(file.parent) == [file.name]


@pytest.mark.parametrize("size", [0, 1, HEADER_SIZE - 1, HEADER_SIZE, -1])
def test_a_file_that_was_cut_is_not_opened(file: Path, size: int) -> None:
    compiled(file, ["example.com"], ["10.0.0.0/8"])
    whole = file.read_bytes()
    file.write_bytes(whole[:size])
    with pytest.raises(ListDamaged):
        CompiledList(file)
    file.write_bytes(whole + b"\0")
    with pytest.raises(ListDamaged):
        CompiledList(file)


def test_each_altered_byte_is_noticed(file: Path) -> None:
    compiled(file, ["example.com"], ["10.0.0.0/8", "2001:db8::/32"])
    whole = file.read_bytes()
    for position in range(len(whole)):
        file.write_bytes(whole[:position] + bytes([whole[position] ^ 0x10]) + whole[position + 1 :])
        with pytest.raises(ListDamaged):
            CompiledList(file).verify()


@table("text", ["", ".", "a..b", "-a.com", "1.2.3.4", "a b", "http://a.com", "a/b", "xn--\u0430", "\u2028"])
def test_what_is_no_domain_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a domain|is no name"):
        domain_of(text)
