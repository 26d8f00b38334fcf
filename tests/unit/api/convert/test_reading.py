"""How lines and values are read, and what becomes of those that can't be carried over."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from api.import_export.convert import Converted, converted, decisions, guessed_format, statements
from api.import_export.convert.regions import Addresses
from api.import_export.convert.statements import Effect
from tests.kit.tables import table


def convert_text(folder: Path, text: str, kind: Any = "squid", accept: tuple[str, ...] = ()) -> Converted:
    file = folder / "file.conf"
    file.write_text(text)
    return converted(file, kind, accept=accept)


def rules_of(found: Converted) -> list[dict[str, Any]]:
    assert found.problems == []
    return [rule for policy in found.document["policies"] for rule in policy["rules"]]


# --- squid's lines ---


def test_lines_go_on_behind_a_backslash_with_comments_between(tmp_path: Path) -> None:
    text = "acl a src 10.0.0.0/8 \\\n# a comment\n  192.0.2.1\nhttp_access allow a # behind\nhttp_port 3128\n"
    found = convert_text(tmp_path, text)
    assert rules_of(found)[0]["match"] == {"clients": ["10.0.0.0/8", "192.0.2.1"]}
    assert rules_of(found)[0]["name"] == "line 4: allow a"


def test_quotation_marks_name_files_of_values(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# none\n\n .a.example \nb.example\n")
    found = convert_text(
        tmp_path, 'acl a dstdomain -n "list"\nhttp_access deny a\nhttp_access allow all\nhttp_port 1\n'
    )
    assert rules_of(found)[0]["match"] == {"destinations": ["a.example", "*.a.example", "b.example"]}


def test_included_files_are_in_their_place(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "2.conf").write_text("http_access deny all\n")
    (tmp_path / "conf.d" / "1.conf").write_text("http_access allow localhost\n")
    found = convert_text(tmp_path, "include conf.d/*.conf\ninclude none/*.conf\nhttp_port 13128\n")
    assert [rule["name"] for rule in rules_of(found)] == ["1.conf:1: allow localhost", "2.conf:1: deny all"]
    assert [each.instead for each in found.report.remarks if each.directive == "include"] == [
        "no file matches: copy them here, or name their place by --root"
    ]


ENDLESS = {
    "squid, itself": ("squid", "include file.conf\n" * 6),
    "squid, all files": ("squid", "include *.conf\n" * 6),
    "3proxy, itself": ("3proxy", "include file.conf\n" * 6),
    "a device": ("squid", "include /proc/self/pagemap\n"),
    "a walk through the disk": ("squid", "include /*/*/*/*/*/*/x.conf\n"),
    "all together": ("squid", "include big\n" * 3),
}


@table(("kind", "lines"), ENDLESS.values(), ids=ENDLESS)
def test_files_without_an_end_are_left_and_refuse_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, lines: str
) -> None:
    monkeypatch.setattr(statements, "FILE_MAX", 64 * 1024)
    monkeypatch.setattr(statements, "READS_MAX", 200)
    (tmp_path / "big").write_text("# nothing\n" * 3_000)
    end = "http_access allow all\nhttp_port 3128\n" if kind == "squid" else "proxy -p3128\n"
    found = convert_text(tmp_path, f"{lines}{end}", kind)
    assert rules_of(found)[0]["match"] == {}
    assert rules_of(found)[0]["action"]["use"] == "deny"
    assert found.report.counts()["refuses"] > 0


LONG: dict[str, Callable[[int], str]] = {
    "blank lines": lambda n: "\n" * n,
    "lines that are continued": lambda n: "a\\\n" * n,
    "addresses": lambda n: f"acl a src {' '.join(f'10.{i % 250}.{i // 250}.1' for i in range(n // 10))}\n",
    "domains": lambda n: "".join(f"acl a dstdomain x{i}.example\n" for i in range(n // 10)),
    "ports": lambda n: f"acl a port {' '.join(str(2 * i % 65_000 + 1) for i in range(n // 10))}\n",
}


@table("kind", LONG)
def test_a_long_configuration_takes_no_more_than_linear_time(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file.conf"
    file.write_text(f"{LONG[kind](40_000)}\nhttp_access deny a\nhttp_port 3128\n")
    began = time.process_time()
    assert guessed_format(file) == "squid"
    converted(file, "squid")
    assert time.process_time() - began < 60


def test_names_of_access_lists_have_no_case_and_their_lines_add_up(tmp_path: Path) -> None:
    text = "acl LAN src 10.0.0.0/8\nacl lan src 192.0.2.0/24\nhttp_access allow Lan\nhttp_port 3128\n"
    found = convert_text(tmp_path, text)
    assert rules_of(found)[0]["match"] == {"clients": ["10.0.0.0/8", "192.0.2.0/24"]}
    assert rules_of(found)[1]["action"] == {"use": "deny"}


@table("word", ["0.0.0.0/0", "0/0", "all", "0.0.0.0-255.255.255.255"])
def test_old_words_for_all_have_ipv6_in_them(tmp_path: Path, word: str) -> None:
    found = convert_text(tmp_path, f"acl any src {word}\nhttp_access deny any\nhttp_access allow all\nhttp_port 1\n")
    assert [(rule["match"], rule["action"]) for rule in rules_of(found)] == [({}, {"use": "deny"})]


def test_old_configurations_define_what_squid_knows_now(tmp_path: Path) -> None:
    text = "acl manager proto cache_object\nacl localhost src 127.0.0.1/32\nacl CONNECT method CONNECT\n"
    text += "http_access allow manager localhost\nhttp_access deny manager\nhttp_access allow localhost\nhttp_port 1\n"
    found = convert_text(tmp_path, text)
    assert [rule["action"]["use"] for rule in rules_of(found)] == ["direct", "deny"]


REFUSED = [
    "http_access deny nothing",
    "acl bad src host.example\nhttp_access deny bad",
    "acl bad src ::ffff:192.0.2.0/120\nhttp_access deny bad",
    "acl bad browser Firefox\nhttp_access deny bad",
    "acl bad dstdomain ümlaut.example\nhttp_access deny bad",
    "acl bad dstdomain 192.0.2.1\nhttp_access deny bad",
    'acl bad dstdomain "missing"\nhttp_access deny bad',
    "acl bad dstdom_regex ads\nhttp_access deny bad",
    "acl bad urlpath_regex -i \\.iso$\nhttp_access deny bad",
    "acl bad url_regex ^http://a/\nhttp_access deny bad",
    "acl bad proxy_auth -i Anna\nhttp_access deny bad",
    "acl bad method M_SEARCH\nhttp_access deny bad",
    "acl bad time 22:00-06:00\nhttp_access deny bad",
    "acl bad strange x\nhttp_access deny bad",
    "acl bad src 10.0.0.1\nacl bad dst 10.0.0.1\nhttp_access deny bad",
    "acl bad maxconn 20\nhttp_access deny bad",
    "acl bad localport 3128\nhttp_access deny bad",
    "acl bad any-of localhost\nhttp_access deny bad",
    "acl bad rep_mime_type x\nhttp_reply_access deny bad",
    "miss_access deny all",
    "include missing.conf",
    "follow_x_forwarded_for allow all",
    "url_rewrite_program /bin/true",
    "adaptation_access scan allow all",
    "if 1 = 1\nhttp_access allow all\nendif",
    "configuration_includes_quoted_values on",
]


@table("lines", REFUSED)
def test_what_can_not_be_checked_is_refused_and_reported(tmp_path: Path, lines: str) -> None:
    found = convert_text(tmp_path, f"{lines}\nhttp_access allow all\nhttp_port 3128\n")
    first = rules_of(found)[0]
    assert (first["match"], first["action"]["use"]) == ({}, "deny")
    assert any(each.effect is Effect.REFUSES and "--accept" in each.instead for each in found.report.remarks)


LEFT_OUT = [
    "http_port 1 intercept",
    "http_port 1 require-proxy-header",
    "http_port a:1",
    "https_port 1 tls-cert=/etc/a.pem tls-clientca=/etc/ca.pem",
    "http_access maybe all",
    "acl",
    "cache_peer 192.0.2.1 parent x 0",
    "cache_peer 192.0.2.1 parent 1 0 login=PASS",
    "tcp_outgoing_address a",
    "tcp_outgoing_address 192.0.2.1 localhost",
    "dns_nameservers dns.example",
    "request_header_access All deny all",
    "request_header_access Cookie deny localhost",
    "delay_access 1 allow all",
    "client_ip_max_connections 5",
    "odd_directive on",
]


@table("line", LEFT_OUT)
def test_a_line_that_is_not_carried_over_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    found = convert_text(tmp_path, f"http_port 127.0.0.1:3128\n{line}\nhttp_access allow all\n")
    assert [proxy["port"] for proxy in found.document["proxies"]] == [3128]
    assert [each.place.line for each in found.report.remarks if each.effect is Effect.LOST and each.place] == [2]


def test_without_upstreams_what_must_not_go_directly_is_refused(tmp_path: Path) -> None:
    text = "cache_peer 192.0.2.1 sibling 3128 0\nnever_direct allow all\nhttp_access allow all\nhttp_port 1\n"
    assert [rule["action"]["use"] for rule in rules_of(convert_text(tmp_path, text))] == ["deny"]


UNCLEAR = """acl iso urlpath_regex -i \\.iso$
acl odd browser Firefox
acl lan src 10.0.0.0/8
http_access deny iso
http_access deny odd
http_access allow lan !odd
http_access deny all
http_port 3128
url_rewrite_program /bin/true
"""


@table(
    ("accept", "rules", "offered"),
    [
        ((), [({}, "deny")], {"4", "9"}),
        (("9", "file.conf:4"), [({}, "deny")], {"5"}),
        (("9", "4", "5"), [({}, "deny")], {"6"}),
        (("9", "4", "5", "6"), [({"clients": ["10.0.0.0/8"]}, "direct"), ({}, "deny")], set()),
    ],
)
def test_lines_that_are_accepted_close_nothing_and_are_in_the_report(
    tmp_path: Path, accept: tuple[str, ...], rules: list[Any], offered: set[str]
) -> None:
    found = convert_text(tmp_path, UNCLEAR, accept=accept)
    assert [(each["match"], each["action"]["use"]) for each in rules_of(found)][: len(rules)] == rules
    assert found.needless == []
    remarks = {effect: [each for each in found.report.remarks if each.effect is effect] for effect in Effect}
    assert len({each.place for each in remarks[Effect.ACCEPTED]}) == len(accept)
    assert {each.instead.rpartition("--accept ")[2] for each in remarks[Effect.REFUSES]} == offered


def test_lines_that_are_accepted_for_nothing_are_named(tmp_path: Path) -> None:
    assert convert_text(tmp_path, UNCLEAR, accept=("4", "7", "44")).needless == ["7", "44"]


def test_what_allows_and_can_not_be_checked_is_left_out(tmp_path: Path) -> None:
    text = "acl good browser Firefox\nacl lan src 10.0.0.0/8\nhttp_access allow good\nhttp_access allow lan !good\n"
    found = convert_text(tmp_path, f"{text}http_access deny all\nhttp_port 3128\n")
    assert [rule["action"]["use"] for rule in rules_of(found)] == ["deny"]
    assert found.report.counts()["refuses"] == 2


def test_many_domains_become_a_list(tmp_path: Path) -> None:
    names = [f".d{number}.example" for number in range(300)]
    text = f"acl ads dstdomain -n {' '.join(names)} alone.example\nhttp_access deny ads\nhttp_access allow all"
    found = convert_text(tmp_path, f"{text}\nhttp_port 1\n")
    assert rules_of(found)[0]["match"]["destinations"] == ["list:ads", "alone.example"]
    [made] = found.document["lists"]
    assert (made["name"], made["kind"], len(made["entries"])) == ("ads", "domains", 300)


def test_more_rules_than_a_policy_holds_refuse_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "RULES_MAX", 100)
    lines = [f"acl n{n} src 10.0.0.{n}\nhttp_access deny n{n}" for n in range(101)]
    found = convert_text(tmp_path, "\n".join([*lines, "http_access allow all", "http_port 3128"]))
    assert [(rule["match"], rule["action"]) for rule in rules_of(found)] == [({}, {"use": "deny"})]
    assert found.report.counts()["refuses"] == 1


def test_exceptions_within_exceptions_stay_few_rules(tmp_path: Path) -> None:
    acls = [f"acl m{n} proxy_auth u{n}\nacl d{n} dstdomain -n d{n}.example" for n in range(40)]
    lines = [f"http_access allow !m{n} !d{n}" for n in range(40)]
    found = convert_text(tmp_path, "\n".join([*acls, *lines, "http_access deny all", "http_port 3128"]))
    rules = [(rule["match"], rule["action"]["use"]) for rule in rules_of(found)]
    assert (len(rules), rules[-1]) == (5, ({}, "direct"))


def test_what_depends_on_methods_and_tunnels_is_a_rule_for_each(tmp_path: Path) -> None:
    text = """
acl writes method POST put CONNECT
acl lan src 10.0.0.0/8
http_access deny !CONNECT lan
http_access allow writes
http_access allow localhost
http_port 3128
"""
    assert [(rule["name"], rule["match"]) for rule in rules_of(convert_text(tmp_path, text))] == [
        ("line 4: deny !CONNECT lan", {"clients": ["10.0.0.0/8"], "methods": ["*"]}),
        ("line 5: allow writes", {"methods": ["POST", "PUT"]}),
        ("line 5: allow writes #2", {"tunnel": True}),
        ("line 6: allow localhost", {"clients": ["127.0.0.0/8", "::1"]}),
        ("no line matches", {}),
    ]


def test_names_of_rules_count_the_words_that_would_make_them_long(tmp_path: Path) -> None:
    names = " ".join(f"!name{number}" for number in range(30))
    acls = "".join(f"acl name{number} src 10.0.0.{number}\n" for number in range(30))
    found = convert_text(tmp_path, f"{acls}http_access deny {names}\nhttp_access allow all\nhttp_port 1\n")
    assert rules_of(found)[-1]["name"] == "line 31: deny !name0 !name1 !name2 !name3 !name4 +25"


# --- values ---


@table(
    ("text", "inside", "outside"),
    [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
        ("192.0.2.0/255.255.255.0", "192.0.2.255", "192.0.3.0"),
        ("192.0.2.10-192.0.2.19", "192.0.2.19", "192.0.2.20"),
        ("2001:db8::/32", "2001:db8:1::", "2001:db9::"),
        ("ipv6", "::1", "127.0.0.1"),
        ("ipv4", "127.0.0.1", "::7f00:1"),
    ],
)
def test_addresses(text: str, inside: str, outside: str) -> None:
    found = Addresses.read(text)
    one, other = map(Addresses.read, (inside, outside))
    assert one & found == one
    assert not other & found


@table("text", ["host", "10.0.0", "10.0.0.1-", "10.0.0.9-10.0.0.1", "10.0.0.1-::1", "1.2.3.4/33", "::ffff:1.2.3.4"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        Addresses.read(text)


# --- 3proxy's lines ---


def test_words_of_3proxy(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("anna:CL:one\r\nbert:CL:two\n")
    users = 'users $users "carl:CL:a ""b"""'
    text = f'auth strong\n{users}\n allow another\n#deny *\nallow "anna","bert"\nproxy\nend of it\nproxy -p2\n'
    found = convert_text(tmp_path, text, "3proxy")
    assert [account["username"] for account in found.document["accounts"]] == ["anna", "bert", "carl"]
    assert len(found.document["proxies"]) == 1
    assert [rule["match"] for rule in rules_of(found)] == [{"accounts": ["anna", "bert"]}, {}]


def test_services_without_authentication_have_no_rules(tmp_path: Path) -> None:
    found = convert_text(tmp_path, "deny *\nproxy -p1\nauth iponly\nproxy -p2\nflush\nproxy -p3\n", "3proxy")
    assert [proxy.get("policy") for proxy in found.document["proxies"]] == [None, "3proxy", None]


def test_addresses_of_services_are_those_of_the_lines_before(tmp_path: Path) -> None:
    text = (
        "external 192.0.2.1\nexternal 2001:db8::1\nproxy -6\nexternal 0.0.0.0\nproxy -p2 -e192.0.2.2 -i::1\nproxy -p3\n"
    )
    both, own, none = convert_text(tmp_path, text, "3proxy").document["proxies"]
    assert (both["bind_address"], both["dns"]) == (["192.0.2.1", "2001:db8::1"], {"prefer": "ipv6"})
    assert (own["bind_address"], own["host"]) == ("192.0.2.2", "::1")
    assert "bind_address" not in none


@table(
    ("lists", "match"),
    [
        ("anna", None),
        ("* 10.0.0.0/8,192.0.2.1-192.0.2.2", {"clients": ["10.0.0.0/8", "192.0.2.1", "192.0.2.2"]}),
        ("* * *.example.com,a.example 80", {"destinations": ["a.example:80", "*.example.com:80"]}),
        ("* * 192.0.2.0/24 80", {"destinations": ["192.0.2.0/24:80"]}),
        ("* * * * HTTP", {"methods": ["*"]}),
        ("* * * 443 HTTPS", {"destinations": [":443"], "tunnel": True}),
    ],
)
def test_lists_of_3proxy(tmp_path: Path, lists: str, match: Any) -> None:
    """Names of users never match without passwords."""
    rules = rules_of(convert_text(tmp_path, f"auth iponly\nallow {lists}\nproxy\n", "3proxy"))
    assert [rule["match"] for rule in rules] == ([{}] if match is None else [match, {}])


UNKNOWN = [
    "deny * host",
    "deny * * *bad*",
    "deny * * *bad.example",
    "deny * * * x",
    "deny * * * * HTTP_GET",
    "deny * * * * * 1-5",
    "deny * * * * * * 08:00:00-12:00:00",
    "deny $missing",
    "redirect 127.0.0.1 80",
    "nsrecord bad.example 0.0.0.0",
    "ssl_server",
    "pcre cliheader deny x *",
    "include missing.cfg",
]


@table("line", UNKNOWN)
def test_what_3proxy_denies_and_can_not_be_checked_is_refused(tmp_path: Path, line: str) -> None:
    found = convert_text(tmp_path, f"auth iponly\n{line}\nallow *\nproxy\n", "3proxy")
    first = rules_of(found)[0]
    assert (first["match"], first["action"]["use"]) == ({}, "deny")
    assert found.report.counts()["refuses"] == 1


@table("line", ["bandlimin 1000 *", "countin 1 D 100 *", "tcppm 25 a 25", "parent 1000 http a 1", "maxconn x", "odd"])
def test_a_command_that_is_not_carried_over_is_reported_with_its_number(tmp_path: Path, line: str) -> None:
    found = convert_text(tmp_path, f"auth iponly\n{line}\nallow *\nproxy\n", "3proxy")
    assert [each.place.line for each in found.report.remarks if each.effect is Effect.LOST and each.place] == [2]
