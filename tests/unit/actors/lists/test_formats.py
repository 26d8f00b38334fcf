"""Lists in the shapes in which they are published, in chunks of any size."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.lists.compiled import ListError
from actors.lists.compiler import ListCompiler, NumberedNetwork, range_of
from actors.lists.reading import EXAMPLES, Skipped, read_list
from actors.lists.streams import LINE_MAX, bounded, lines, unzipped
from tests.kit.tables import table


class Collected(ListCompiler):
    """A compiler that remembers what is added."""

    def __init__(self) -> None:
        super().__init__()
        self.domains: list[str] = []
        self.networks: list[NumberedNetwork] = []

    def add_domain(self, name: str) -> None:
        super().add_domain(name)
        self.domains.append(name)

    def add_network(self, network: NumberedNetwork) -> None:
        super().add_network(network)
        self.networks.append(network)


def cut(data: bytes, size: int = 5) -> Iterator[bytes]:
    return (data[start : start + size] for start in range(0, len(data), size))


def domains(data: str | bytes, form: str) -> tuple[list[str], Skipped]:
    found = Collected()
    content = data if isinstance(data, bytes) else data.encode()
    return found.domains, read_list(cut(content), "domains", form, found)


def networks(data: str, form: str) -> tuple[list[NumberedNetwork], Skipped]:
    found = Collected()
    return found.networks, read_list(cut(data.encode()), "networks", form, found)


def test_plain_domains() -> None:
    text = "\ufeff# list\r\nExample.COM.\r\n\r\n*.wide.net  # note\r.dot.org\r\n! more\n; more\n"
    found, skipped = domains(text + "b\u00fccher.de\ntwo words\nhttp://a.com/x\n192.0.2.1\nlast.com", "plain")
    assert found == ["example.com", "wide.net", "dot.org", "xn--bcher-kva.de", "last.com"]
    assert skipped.count == 3
    assert [(line, text) for line, text, _why in skipped.examples] == [
        (9, "two words"),
        (10, "http://a.com/x"),
        (11, "192.0.2.1"),
    ]


def test_plain_networks() -> None:
    text = "192.0.2.0/24 ; SBL1\n10.0.0.1\n2001:db8::/32 # six\n::ffff:10.0.0.2\n10.0.0.0/255.0.0.0\nexample.com\n"
    found, skipped = networks(text, "plain")
    assert found == [range_of(each) for each in ("192.0.2.0/24", "10.0.0.1", "2001:db8::/32", "10.0.0.2")]
    assert skipped.count == 2


def test_hosts() -> None:
    found, skipped = domains(
        "127.0.0.1 localhost\n::1 ip6-localhost ip6-loopback\nfe80::1%lo0 localhost\n255.255.255.255\tbroadcasthost\n"
        "0.0.0.0 0.0.0.0\n0.0.0.0\tads.com tracker.net # both\n# comment\n0.0.0.0 -bad- good.org\nads.com\n0.0.0.0\n",
        "hosts",
    )
    assert found == ["ads.com", "tracker.net", "good.org"]
    assert [(line, why) for line, _text, why in skipped.examples] == [
        (8, "is not a domain"),
        (9, "doesn't begin with an address"),
        (10, "has no name behind the address"),
    ]


def test_adblock() -> None:
    found, skipped = domains(
        "[Adblock Plus 2.0]\n! Title\n||ads.com^\n||b.com^$third-party\n@@||c.com^\n##.ad\nx.com#@#.ad\n||d.com/x\n"
        "||*.e.com^\n/banner/\n|http://f.com\n||g.net^|\n||last.org^",
        "adblock",
    )
    assert found == ["ads.com", "last.org"]
    assert skipped.count == 9
    assert [why for _line, _text, why in skipped.examples] == [
        "has options",
        "is an exception",
        "is a cosmetic rule",
        "is a cosmetic rule",
        "is not ||domain^",
    ]
    assert len(skipped.examples) == EXAMPLES


ZONE = """$TTL 60
@ IN SOA localhost. root.localhost. (
  1 ; serial
  2 3 4 5 )
  IN NS localhost.
bad.com 1w2d3H CNAME .
*.bad.com 300 IN CNAME .
local.net  A 127.0.0.1
   TXT "a;b ( c"
   TXT "a;b \\" ( c
good.com CNAME rpz-passthru.
24.0.2.0.192.rpz-ip CNAME .
48.zz.8.db8.2001.rpz-ip CNAME *.
128.1.zz.rpz-ip CNAME *.
32.4.3.2.1.rpz-client-ip CNAME .
ns.evil.rpz-nsdname CNAME .
$ORIGIN rpz.example.
whole.com.rpz.example. CNAME rpz-drop.
outside.com. CNAME .
$GENERATE 1-2 a$ CNAME .
"""


def test_rpz_domains() -> None:
    found, skipped = domains(ZONE, "rpz")
    assert list(dict.fromkeys(found)) == ["bad.com", "local.net", "whole.com"]
    assert skipped.count == 8


def test_rpz_networks() -> None:
    found, _skipped = networks(ZONE, "rpz")
    assert found == [range_of(each) for each in ("192.0.2.0/24", "2001:db8:8::/48", "::1/128")]


def test_other_charsets_are_skipped_or_read() -> None:
    found, skipped = domains("b\u00fccher.de\nok.com\n".encode("latin-1"), "plain")
    assert (found, skipped.count, skipped.examples[0][2]) == (["ok.com"], 1, "is not UTF-8")
    assert domains("a.com\r\nb\u00fccher.de\n".encode("utf-16"), "plain")[0] == ["a.com", "xn--bcher-kva.de"]


def test_names_in_other_letters_are_read_in_every_format() -> None:
    texts = {
        "plain": "*.b\u00fccher.de\n",
        "hosts": "0.0.0.0 b\u00fccher.de\n",
        "adblock": "||b\u00fccher.de^\n",
        "rpz": "*.b\u00fccher.de CNAME .\n",
    }
    for form, text in texts.items():
        assert domains(text, form)[0] == ["xn--bcher-kva.de"], form


def test_binary_and_html_have_no_entries() -> None:
    assert domains(bytes(range(256)) * 40, "plain")[0] == []
    assert domains("<!doctype html>\n<html lang=en>\n<p>Not found</p>\n</html>\n", "plain")[0] == []


def test_a_line_without_end_is_not_held() -> None:
    data = b"a.com\n" + b"x" * (3 * LINE_MAX) + b"\r\nb.com\n" + b"y" * (2 * LINE_MAX)
    assert list(lines(cut(data, 1000))) == [b"a.com", None, b"b.com", None]


@given(st.lists(st.sampled_from([b"a.com", b"\r", b"\n", b"\r\n", b"", b"b c"]), max_size=20), st.integers(1, 8))
def test_lines_are_the_same_in_chunks_of_any_size(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    assert list(lines(cut(data, size))) == data.splitlines()


def test_gzip_of_several_members() -> None:
    data = gzip.compress(b"a.com\n") + gzip.compress(b"b.com\n")
    assert b"".join(unzipped(cut(data), 100)) == b"a.com\nb.com\n"
    assert b"".join(unzipped(cut(b"plain"), 100)) == b"plain"
    assert b"".join(unzipped(cut(b""), 100)) == b""


@table("size", [3, 12, 30, -9, -1])
def test_gzip_that_was_cut_is_no_list(size: int) -> None:
    data = gzip.compress(b"".join(b"host%d.example.com\n" % number for number in range(100)))
    with pytest.raises(ListError, match="ends too early"):
        list(unzipped(cut(data[:size]), 10_000))


def test_damaged_gzip_is_no_list() -> None:
    data = bytearray(gzip.compress(b"a.com\n" * 50))
    data[-5] ^= 1
    with pytest.raises(ListError, match="damaged"):
        list(unzipped(cut(bytes(data)), 10_000))


def test_little_that_unpacks_to_much_ends_at_the_limit() -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(1_000_000)) for _ in range(100)) + packer.flush()
    pieces: list[int] = []
    with pytest.raises(ListError, match="decompressed content has more than 5000000 bytes"):
        pieces.extend(map(len, unzipped(cut(bomb, 65_536), 5_000_000)))
    assert sum(pieces) <= 5_000_000


def test_more_than_the_limit_is_no_list() -> None:
    with pytest.raises(ListError, match="more than 10 bytes"):
        list(bounded(cut(b"x" * 11), 10, "it"))


@given(
    st.binary(max_size=300),
    st.sampled_from(["plain", "hosts", "adblock", "rpz"]),
    st.sampled_from(["domains", "networks"]),
)
def test_nothing_that_is_read_raises(data: bytes, form: str, kind: str) -> None:
    found = Collected()
    skipped = read_list(cut(data), kind, form, found)
    assert len(skipped.examples) <= min(skipped.count, EXAMPLES)
