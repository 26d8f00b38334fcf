"""Lists of upstreams as providers write them: what each line means, what is refused, no error with a password."""

from __future__ import annotations

import csv
import io
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from config.files.secret_box import SecretBox
from config.model.fields import InvalidProxy
from config.model.proxies import ProxyUpdate
from config.model.shared_objects.upstreams import ProxyUpstream, Upstreams, replace_upstreams
from config.text.upstream_lines import BadUpstreamLine, read_line, read_text
from tests.kit.tables import table

READER: TypeAdapter[Any] = TypeAdapter(Upstreams)
SECRET = "s3cret-of-an-upstream"


def upstream(
    protocol: str, host: str, port: int, user: str | None = None, password: str | None = None
) -> dict[str, Any]:
    entry: dict[str, Any] = {"protocol": protocol, "host": host, "port": port}
    if user is not None:
        entry["auth"] = {"username": user, **({} if password is None else {"password": password})}
    return entry


@table(
    ("line", "entry"),
    [
        ("p.example:3128", upstream("http", "p.example", 3128)),
        ("192.0.2.7:80", upstream("http", "192.0.2.7", 80)),
        ("[2001:db8::1]:80", upstream("http", "2001:db8::1", 80)),
        ("p.example:1:user:pass", upstream("http", "p.example", 1, "user", "pass")),
        ("p.example:1:user", upstream("http", "p.example", 1, "user")),
        ("p.example:1::", upstream("http", "p.example", 1)),
        ("[::1]:1:user:pass", upstream("http", "::1", 1, "user", "pass")),
        ("p.example:1:user:pa:ss@word", upstream("http", "p.example", 1, "user", "pa:ss@word")),
        ("p.example:1:user:50%41", upstream("http", "p.example", 1, "user", "50%41")),
        ("user:pass@p.example:1", upstream("http", "p.example", 1, "user", "pass")),
        ("user:p@ss:word@p.example:1", upstream("http", "p.example", 1, "user", "p@ss:word")),
        ("user:123@p.example:1", upstream("http", "p.example", 1, "user", "123")),
        ("user@[::1]:1", upstream("http", "::1", 1, "user")),
        ("http://p.example:1", upstream("http", "p.example", 1)),
        ("HTTPS://p.example:1/", upstream("https", "p.example", 1)),
        ("socks4a://user@p.example:1", upstream("socks4", "p.example", 1, "user")),
        ("socks5h://user:pass@p.example:1", upstream("socks5", "p.example", 1, "user", "pass")),
        ("socks5://us%3Aer:p%40ss%2F%25@[::1]:1", upstream("socks5", "::1", 1, "us:er", "p@ss/%")),
        ("socks5://user:p%C3%A9@p.example:1", upstream("socks5", "p.example", 1, "user", "p\u00e9")),
        ("\ufeff  http://p.example:1\t\r", upstream("http", "p.example", 1)),
    ],
)
def test_a_line_is_one_upstream(line: str, entry: dict[str, Any]) -> None:
    assert read_line(line) == entry


@table(
    ("line", "labels", "name", "password"),
    [
        ("p.example:1:user:pass country=de #de1", {"country": "de"}, "de1", "pass"),
        ("p.example:1:user:pass #de1 country=de", {"country": "de"}, "de1", "pass"),
        ("p.example:1:user:pass  city=berlin\tcountry=de ", {"city": "berlin", "country": "de"}, None, "pass"),
        ("user:pass@p.example:1 #de1", {}, "de1", "pass"),
        ("http://user:pass%20a=b@p.example:1 isp=a=b", {"isp": "a=b"}, None, "pass a=b"),
        ("p.example:1:user:pass word", {}, None, "pass word"),
        ("p.example:1:user:a=b#c", {}, None, "a=b#c"),
    ],
)
def test_labels_and_a_name_may_follow_a_line(
    line: str, labels: dict[str, str], name: str | None, password: str
) -> None:
    wanted = upstream("http", "p.example", 1, "user", password)
    wanted |= {"labels": labels} if labels else {}
    assert read_line(line) == wanted | ({"name": name} if name else {})


def test_upstreams_of_a_proxy_have_no_labels() -> None:
    with pytest.raises(ValidationError, match=r"line 1: labels: is only for upstreams of a pool"):
        READER.validate_python("p.example:1 country=de")


@table(
    ("line", "error"),
    [
        ("p.example:1 #one #two", "has two names"),
        (f"p.example:1 a={SECRET} a={SECRET}", "has a label twice"),
        ("p.example:1 " + " ".join(f"a{number}=x" for number in range(33)), "has more than 32 labels"),
        ("p.example", "must be host:port"),
        ("p.example:port", "must be host:port"),
        ("2001:db8::1:80:u:p", "must be host:port"),
        ("p example:1", "must be host:port"),
        (f"ftp://u:{SECRET}@p.example:1", "the protocol must be one of"),
        (f"http://u:{SECRET}@p.example", "must end with host:port"),
        (f"http://u:{SECRET}@p.example:1/path", "must end with host:port"),
        (f"http://u:{SECRET}@p.example:1?query", "must end with host:port"),
        (f"http://u:{SECRET}%zz@p.example:1", "two hex digits"),
        (f"http://u:{SECRET}%ff@p.example:1", "UTF-8"),
        (f"p.example:1::{SECRET}", "password without a user name"),
        (f":{SECRET}@p.example:1", "password without a user name"),
    ],
)
def test_what_is_no_upstream_is_refused_by_its_line_and_not_repeated(line: str, error: str) -> None:
    with pytest.raises(BadUpstreamLine) as refused:
        read_text(f"\n# a list\ngood.example:1\n{line}\n")
    assert str(refused.value).startswith("line 4: ")
    assert error in str(refused.value)
    assert SECRET not in str(refused.value)


def test_blank_lines_and_comments_are_passed_over_and_counted() -> None:
    assert [number for number, _ in read_text("\r\n# one\r\na.example:1\r\n\r\n  # two\r\nb.example:2\r\n")] == [3, 6]


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing\n"])
def test_a_list_without_any_upstream_does_not_end_the_chain_by_mistake(text: str) -> None:
    with pytest.raises(BadUpstreamLine, match="no upstream"):
        read_text(text)


def test_csv_is_known_by_its_columns() -> None:
    text = """# from the provider
Host, Port,protocol,username,password,weight,name
p.example,1,socks5h,user,"pa,ss ""word\""",7,first
::1,2,,,,,
"""
    first, second = (entry for _, entry in read_text(text, "https"))
    assert first == {**upstream("socks5", "p.example", 1, "user", 'pa,ss "word"'), "weight": 7, "name": "first"}
    assert second == upstream("https", "::1", 2)


def test_columns_of_csv_may_be_labels() -> None:
    text = "host,port,name,label.country,label.city\na.example,1,de1,de,berlin\nb.example,2,,fr,\n"
    first, second = (entry for _, entry in read_text(text))
    assert first == {**upstream("http", "a.example", 1), "name": "de1", "labels": {"country": "de", "city": "berlin"}}
    assert second == {**upstream("http", "b.example", 2), "labels": {"country": "fr"}}


@table(
    ("text", "error"),
    [
        (f"host,port,colour\np,1,{SECRET}", "line 1: the columns may be"),
        ("host,port,host\np,1,q", "line 1: the columns may be"),
        (f"host,port,password\np,1,{SECRET},x", "line 2: has 4 cells, and there are 3 columns"),
        ("host,port\np,1\nq,x", "line 3: the port must be a number"),
        ("host,port,weight\np,1,heavy", "line 2: the weight must be a number"),
        (f"host,port,username,password\np,1,,{SECRET}", "line 2: there is a password without a user name"),
        ("host,port,protocol\np,1,ftp", "line 2: the protocol must be one of"),
        (f'host,port,username,password\np,1,u,"{SECRET}', "line 2: is not CSV"),
    ],
)
def test_what_is_wrong_with_csv_is_reported_by_its_line(text: str, error: str) -> None:
    with pytest.raises(BadUpstreamLine) as refused:
        read_text(text)
    assert str(refused.value).startswith(error)
    assert SECRET not in str(refused.value)


NAMES = st.from_regex(r"[a-z]{1,10}\.example", fullmatch=True)
PORTS = st.integers(1, 65535)
PLAIN = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=':@/#,"'), min_size=1, max_size=9)


@given(host=NAMES, port=PORTS, user=PLAIN, password=PLAIN)
def test_the_same_upstream_in_every_form_is_the_same(host: str, port: int, user: str, password: str) -> None:
    wanted = upstream("http", host, port, user, password)
    escaped = "".join(f"%{byte:02x}" for byte in password.encode())
    for line in (
        f"{host}:{port}:{user}:{password}",
        f"{user}:{password}@{host}:{port}",
        f"http://{user.replace('%', '%25')}:{escaped}@{host}:{port}",
    ):
        assert read_line(line) == wanted
    written = io.StringIO()
    csv.writer(written).writerows([["host", "port", "username", "password"], [host, port, user, password]])
    assert [entry for _, entry in read_text(written.getvalue())] == [wanted]


@settings(deadline=None)
@given(text=st.text(max_size=60) | st.text('ab:@/[]%#,\n"0129', max_size=40))
def test_any_text_is_upstreams_or_refused_with_a_reason(text: str) -> None:
    try:
        entries = READER.validate_python(text)
    except ValidationError as error:
        entries = [each["msg"] for each in error.errors()]
    assert all(entries)
    assert entries


# --- as the field `upstreams` -------------------------------------------------------------------------------------


def error_in(error: ValidationError) -> tuple[str, str]:
    first = error.errors()[0]
    return ".".join(str(part) for part in first["loc"]), first["msg"]


def test_lines_and_objects_may_stand_side_by_side_and_bare_ones_are_of_the_protocol_that_is_said() -> None:
    update = ProxyUpdate.model_validate(
        {
            "upstream_protocol": "socks5",
            "upstreams": ["a.example:1", "http://b.example:2", {"protocol": "https", "host": "c.example", "port": 3}],
        }
    )
    assert [each.protocol for each in update.upstreams or ()] == ["socks5", "http", "https"]
    text = ProxyUpdate.model_validate({"upstream_protocol": "socks4", "upstreams": "a.example:1\nb.example:2"})
    assert [each.protocol for each in text.upstreams or ()] == ["socks4", "socks4"]


@table(
    ("upstreams", "field", "error"),
    [
        (["a.example:1", f"bad line {SECRET}"], "1", "must be host:port"),
        (["a.example:0"], "0.port", "greater than or equal to 1"),
        ([f"a.example:1:u:{SECRET}\x01"], "0.auth.password", "control characters"),
        ([f"a.example:1:u:{SECRET}", None], "1", "should be"),
        (f"# list\na.example:1:u:{SECRET}\nb.example:70000", "1", "line 3: port: must be at most 65535"),
        (f"127.1:1:u:{SECRET}", "0", "line 1: host: must be a host name or an IP address"),
        ("\n", "", "there is no upstream in it"),
    ],
)
def test_the_entry_or_the_line_at_fault_is_named(upstreams: Any, field: str, error: str) -> None:
    with pytest.raises(ValidationError) as refused:
        READER.validate_python(upstreams)
    assert error_in(refused.value)[0] == field
    assert error in error_in(refused.value)[1]
    assert SECRET not in error_in(refused.value)[1]


@pytest.mark.parametrize(
    ("text", "field", "error"),
    [
        ("a.example:1\n\na.example:1:u:p\na.example:1", "upstreams[2]", "line 4: is the same upstream as line 1"),
        ("\nsocks4://u:p@a.example:1", "upstreams[0].auth.password", "line 2: socks4 has no passwords"),
    ],
)
def test_what_does_not_go_together_is_reported_by_its_lines(tmp_path: Path, text: str, field: str, error: str) -> None:
    with pytest.raises(InvalidProxy) as refused:
        replace_upstreams([], READER.validate_python(text), SecretBox(tmp_path / "keys" / "secrets.key"), ProxyUpstream)
    assert refused.value.field == field
    assert refused.value.error.startswith(error)


def test_ten_thousand_sessions_of_one_gateway_are_read_in_reasonable_time(tmp_path: Path) -> None:
    text = "\n".join(f"gate.example:8000:user-session-{number}:{SECRET}" for number in range(10_000))
    began = time.thread_time()
    upstreams = replace_upstreams(
        [], READER.validate_python(text), SecretBox(tmp_path / "keys" / "secrets.key"), ProxyUpstream
    )
    assert time.thread_time() - began < 20  # it grew with the square of their number once
    assert len({each.name for each in upstreams}) == 10_000
