"""The upstreams of a pool from a source: what is read, what is skipped, and that no report quotes a line."""

from __future__ import annotations

import pytest

from actors.lists.compiled import ListError
from actors.lists.reading import Skipped
from actors.lists.upstreams import read_upstreams
from config.model.shared_objects.upstreams import UPSTREAMS_MAX
from tests.kit.tables import table

SECRET = "s3cret-of-a-provider"


def read(text: str | bytes, form: str = "text http", before: int = 0) -> tuple[list[dict[str, object]], Skipped]:
    content = text if isinstance(text, bytes) else text.encode()
    _, found, skipped = read_upstreams(iter([content[:7], content[7:]]), form, before)
    return found, skipped


def test_lines_and_csv_are_read_with_their_labels() -> None:
    lines, _ = read("# exits\nb.example:1:u:p country=de #de1\nhttp://a.example:2\n", "text socks5")
    assert lines == [
        {
            "protocol": "socks5",
            "host": "b.example",
            "port": 1,
            "auth": {"username": "u", "password": "p"},
            "labels": {"country": "de"},
            "name": "de1",
        },
        {"protocol": "http", "host": "a.example", "port": 2},
    ]
    rows, _ = read("host,port,label.country\na.example,2,fr\n", "csv http")
    assert rows == [{"protocol": "http", "host": "a.example", "port": 2, "labels": {"country": "fr"}}]


@table(
    ("line", "reason"),
    [
        (f"bad line {SECRET}", "must be host:port"),
        (f"a.example:70000:u:{SECRET}", "port: must be at most 65535"),
        (f"a.example:1:u:{SECRET} Country={SECRET}", "labels: the name of a label is 1 to 32"),
        (f"socks4://u:{SECRET}@a.example:1", "auth.password: socks4 has no passwords"),
        (f"ok.example:1:u2 #{SECRET}\x01", "name: control characters are not allowed"),
        ("ok.example:1", "is the same upstream as line 1"),
    ],
)
def test_a_line_that_is_no_upstream_is_skipped_and_not_quoted(line: str, reason: str) -> None:
    found, skipped = read(f"ok.example:1\n{line}\nlast.example:1\n")
    assert [each["host"] for each in found] == ["ok.example", "last.example"]
    assert (skipped.count, skipped.examples[0][:2]) == (1, (2, ""))
    assert skipped.examples[0][2].startswith(reason), skipped.examples
    assert SECRET not in repr(skipped)


def test_rows_behind_a_bad_one_are_read() -> None:
    found, skipped = read('host,port\na.example,1\nb.example,x\n"c"d,1\ne.example,2\n', "csv http")
    assert [each["host"] for each in found] == ["a.example", "e.example"]
    assert [each[0] for each in skipped.examples] == [3, 4]


def test_a_name_that_several_lines_have_names_none() -> None:
    found, skipped = read("a.example:1 #exit\nb.example:1 #exit\nc.example:1 #c\n")
    assert ([each["name"] for each in found], skipped.count) == ([None, None, "c"], 0)


@table(
    ("text", "form", "before", "error"),
    [
        ("", "text http", 0, "there is no upstream in it"),
        ("bad\n", "text http", 0, r"there is no upstream in it \(1 line skipped\)"),
        ("a.example:1\n", "csv http", 0, "it is no CSV with upstreams: line 1: must name the columns"),
        ("host,port,colour\n", "csv http", 0, "it is no CSV with upstreams: line 1: the columns may be"),
        ("a.example:1\n", "text http", 3, "it has 1 upstream now .*, 3 before: less than half"),
        (b"\xff", "text http", 0, "it is not UTF-8"),
    ],
)
def test_what_can_not_take_the_place_of_the_upstreams_before_is_refused(
    text: str | bytes, form: str, before: int, error: str
) -> None:
    with pytest.raises(ListError, match=error):
        read(text, form, before)


def test_there_may_be_ten_thousand() -> None:
    found, skipped = read("".join(f"a.example:1:user{number}\n" for number in range(UPSTREAMS_MAX + 2)))
    assert (len(found), skipped.count, skipped.examples[0][0]) == (UPSTREAMS_MAX, 2, UPSTREAMS_MAX + 1)


def test_the_digest_is_of_the_upstreams() -> None:
    texts = ("a.example:1:u:p\n", "# today\na.example:1:u:p\n", "a.example:1:u:q\n")
    first, second, third = (read_upstreams(iter([each.encode()]), "text http", 0)[0] for each in texts)
    assert first == second != third
