"""How lines, values and expressions are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from api.import_export.convert import statements
from api.import_export.convert.conversion import Converted, converted, guessed_format
from api.import_export.convert.host_sets import Names
from api.import_export.convert.report import Effect
from api.import_export.convert.squid import regexes, values
from api.import_export.convert.squid.lexer import words_of


def convert_text(folder: Path, text: str, kind: Any = "squid", accept: tuple[str, ...] = ()) -> Converted:
    file = folder / "file.conf"
    file.write_text(text)
    return converted(file, kind, "UTC", accept=accept)


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
    (tmp_path / "list").write_text("# none\n\n .a.example \n.b.example\n")
    text = (
        'acl a dstdomain -n "list"\nacl b dstdomain -n parameters("list")\nhttp_access deny a b\nhttp_access allow all'
    )
    assert rules_of(convert_text(tmp_path, f"{text}\nhttp_port 3128\n"))[0]["match"] == {
        "destinations": ["a.example", "*.a.example", "b.example", "*.b.example"]
    }


def test_words() -> None:
    assert words_of('request_header_add X "a b" all') == ("X", "\x00file:a b", "all")
    assert words_of("http_port 3128 # comment") == ("3128",)
    assert words_of("acl") == ()


def test_conditions_and_includes(tmp_path: Path) -> None:
    (tmp_path / "conf.d").mkdir()
    (tmp_path / "conf.d" / "2.conf").write_text("http_access deny all\n")
    (tmp_path / "conf.d" / "1.conf").write_text("http_access allow localhost\n")
    text = (
        "if 1 = 1\ninclude conf.d/*.conf\nelse\nhttp_access allow all\nendif\n"
        "if false\nhttp_access allow all\nendif\nhttp_port ${process_number}3128\n"
    )
    found = convert_text(tmp_path, text)
    assert [rule["name"] for rule in rules_of(found)] == [
        "1.conf:1: allow localhost",
        "2.conf:1: deny all",
    ]
    assert found.document["proxies"][0]["port"] == 13128


def test_files_that_include_themselves_end(tmp_path: Path) -> None:
    found = convert_text(tmp_path, "include file.conf\nhttp_access allow all\nhttp_port 3128\n")
    assert rules_of(found)[0]["action"]["use"] == "deny"
    assert found.report.counts()["refuses"] > 0


@pytest.mark.parametrize(("kind", "name"), [("squid", "file.conf"), ("squid", "*.conf"), ("3proxy", "file.conf")])
def test_files_that_include_themselves_twice_end_before_they_have_doubled_sixteen_times(
    tmp_path: Path, kind: str, name: str
) -> None:
    line = f"include {name}\n"
    port = "http_port 3128\n" if kind == "squid" else "proxy -p3128\n"
    found = convert_text(tmp_path, f"{line * 6}{port}", kind)
    assert found.report.counts()["refuses"] > 0


@pytest.mark.parametrize("pattern", ["/proc/self/pagemap", "/*/*/*/*/*/*/x.conf"])
def test_a_file_without_an_end_and_a_walk_through_the_disk_are_refused(
    tmp_path: Path, pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "FILE_MAX", 64 * 1024)
    (tmp_path / "inner.conf").write_text(f"include {pattern}\n")
    found = convert_text(tmp_path, "include inner.conf\nhttp_access allow all\nhttp_port 3128\n")
    assert rules_of(found)[0]["action"]["use"] == "deny"


def test_all_files_together_have_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statements, "FILE_MAX", 64 * 1024)
    (tmp_path / "big.conf").write_text("# nothing\n" * 3_000)
    found = convert_text(tmp_path, "include big.conf\ninclude big.conf\ninclude big.conf\nhttp_port 3128\n")
    assert rules_of(found)[0]["action"]["use"] == "deny"


LONG: dict[str, Callable[[int], str]] = {
    "blank lines": lambda n: "\n" * n,
    "lines that are continued": lambda n: "a\\\n" * n,
    "addresses": lambda n: f"acl a src {' '.join(f'10.{i % 250}.{i // 250}.1' for i in range(n // 10))}\n",
    "domains": lambda n: "".join(f"acl a dstdomain x{i}.example\n" for i in range(n // 10)),
    "ports": lambda n: f"acl a port {' '.join(str(2 * i % 65_000 + 1) for i in range(n // 10))}\n",
}


@pytest.mark.parametrize("kind", LONG)
def test_a_long_configuration_takes_no_more_than_linear_time(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "file.conf"
    file.write_text(f"{LONG[kind](100_000)}\nhttp_access deny a\nhttp_port 3128\n")
    began = time.process_time()
    assert guessed_format(file) == "squid"
    converted(file, "squid", "UTC")
    assert time.process_time() - began < 60


@pytest.mark.parametrize("line", ["if true\n" * 20, f"if {'9' * 5_000} = 1\n"])
def test_odd_conditions_are_a_sentence(tmp_path: Path, line: str) -> None:
    (tmp_path / "inner.conf").write_text(f"{line}http_access allow all\n")
    found = convert_text(tmp_path, "include inner.conf\nhttp_access allow all\nhttp_port 3128\n")
    assert not found.report.complete


def test_an_expression_of_many_groups_in_one_another_is_reported(tmp_path: Path) -> None:
    deep = "(" * 5_000 + "a" + ")" * 5_000
    text = f"acl deep url_regex {deep}\nhttp_access deny deep\nhttp_access allow all\nhttp_port 3128\n"
    found = convert_text(tmp_path, text)
    assert rules_of(found)[0]["action"]["use"] == "deny"
    assert any("groups in one another" in each.why for each in found.report.remarks)


def test_names_of_access_lists_have_no_case_and_their_lines_add_up(tmp_path: Path) -> None:
    text = "acl LAN src 10.0.0.0/8\nacl lan src 192.0.2.0/24\nhttp_access allow Lan\nhttp_port 3128\n"
    found = convert_text(tmp_path, text)
    assert rules_of(found)[0]["match"] == {"clients": ["10.0.0.0/8", "192.0.2.0/24"]}
    assert rules_of(found)[1]["action"] == {"use": "deny"}


@pytest.mark.parametrize("word", ["0.0.0.0/0", "0/0", "all"])
def test_old_words_for_all_have_ipv6_in_them(tmp_path: Path, word: str) -> None:
    found = convert_text(tmp_path, f"acl any src {word}\nhttp_access deny any\nhttp_access allow all\nhttp_port 1\n")
    assert [(rule["match"], rule["action"]) for rule in rules_of(found)] == [({}, {"use": "deny"})]


@pytest.mark.parametrize(
    "line",
    [
        "http_access deny nothing",
        "acl bad src host.example\nhttp_access deny bad",
        "acl bad browser Firefox\nhttp_access deny bad",
        "acl bad dstdomain ümlaut.example\nhttp_access deny bad",
        'acl bad dstdomain "missing"\nhttp_access deny bad',
        "acl bad dstdom_regex ads\nhttp_access deny bad",
        "acl bad strange x\nhttp_access deny bad",
        "acl bad any-of bad\nhttp_access deny bad",
        "http_access allow all\nacl bad rep_mime_type x\nhttp_reply_access deny bad",
        "include missing.conf",
        "follow_x_forwarded_for allow all",
        "url_rewrite_program /bin/true",
    ],
)
def test_what_can_not_be_checked_is_refused_and_reported(tmp_path: Path, line: str) -> None:
    found = convert_text(tmp_path, f"{line}\nhttp_access allow all\nhttp_port 3128\n")
    first = rules_of(found)[0]
    assert (first["match"], first["action"]["use"]) == ({}, "deny")
    assert any(each.effect is Effect.REFUSES for each in found.report.remarks)


UNCLEAR = r"""acl iso urlpath_regex -i \.(iso|exe)$
acl odd urlpath_regex [0-9]
acl lan src 10.0.0.0/8
http_access deny iso
http_access deny odd
http_access allow lan !odd
http_access deny all
http_port 3128
url_rewrite_program /bin/true
"""

SPELLINGS = sorted({"".join(each) for word in ("iso", "exe") for each in product(*((c, c.upper()) for c in word))})
IN_PATHS, IN_QUERIES = [f"/*.{each}" for each in SPELLINGS], [f"/*?*.{each}" for each in SPELLINGS]


@pytest.mark.parametrize(
    ("accept", "rules"),
    [
        ((), [({}, "deny")]),
        (("9", "5", "6"), [({"paths": IN_PATHS + IN_QUERIES}, "deny"), ({"clients": ["10.0.0.0/8"]}, "direct")]),
        (("9", "4"), [({"paths": ["/*.EXE", "/*.ISO", "/*.exe", "/*.iso"]}, "deny"), ({"methods": ["*"]}, "deny")]),
        (
            ("9", "file.conf:4", "5", "6"),
            [
                ({"paths": ["/*.EXE", "/*.ISO", "/*.exe", "/*.iso"]}, "deny"),
                ({"clients": ["10.0.0.0/8"]}, "direct"),
                ({}, "deny"),
            ],
        ),
    ],
)
def test_lines_that_are_accepted_close_nothing_and_are_in_the_report(
    tmp_path: Path, accept: tuple[str, ...], rules: list[Any]
) -> None:
    found = convert_text(tmp_path, UNCLEAR, accept=accept)
    assert [(each["match"], each["action"]["use"]) for each in rules_of(found)][: len(rules)] == rules
    assert found.needless == []
    remarks = {effect: [each for each in found.report.remarks if each.effect is effect] for effect in Effect}
    assert len({each.place for each in remarks[Effect.ACCEPTED]}) == len(accept)
    offered = {each.instead.rpartition("--accept ")[2] for each in remarks[Effect.REFUSES]}
    assert offered == {"4", "5", "6", "9"} - {each.removeprefix("file.conf:") for each in accept}


def test_an_end_of_paths_is_one_rule_with_exceptions_before_it(tmp_path: Path) -> None:
    text = "acl iso urlpath_regex \\.iso$\nacl boss src 10.0.0.1\nhttp_access deny iso !boss\nhttp_access allow all\n"
    assert [rule["match"] for rule in rules_of(convert_text(tmp_path, f"{text}http_port 1\n"))] == [
        {"clients": ["10.0.0.1"], "paths": ["/*.iso", "/*?*.iso"]},
        {"paths": ["/*.iso", "/*?*.iso"]},
        {},
    ]


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


def test_more_rules_than_a_policy_holds_refuse_everything(tmp_path: Path) -> None:
    lines = [f"acl n{n} src 10.0.{n // 250}.{n % 250}\nhttp_access deny n{n}" for n in range(1001)]
    found = convert_text(tmp_path, "\n".join([*lines, "http_access allow all", "http_port 3128"]))
    assert [(rule["match"], rule["action"]) for rule in rules_of(found)] == [({}, {"use": "deny"})]
    assert found.report.counts()["refuses"] == 1


def test_exceptions_within_exceptions_stay_few_rules(tmp_path: Path) -> None:
    acls = [f"acl m{n} proxy_auth u{n}\nacl d{n} dstdomain -n d{n}.example" for n in range(40)]
    lines = [f"http_access allow !m{n} !d{n}" for n in range(40)]
    found = convert_text(tmp_path, "\n".join([*acls, *lines, "http_access deny all", "http_port 3128"]))
    assert [(rule["match"], rule["action"]["use"]) for rule in rules_of(found)] == [({}, "direct")]


def test_what_depends_on_methods_and_tunnels_is_one_rule_of_each_line(tmp_path: Path) -> None:
    text = """
acl writes method POST PUT CONNECT
acl lan src 10.0.0.0/8
acl page urlpath_regex ^/x/
http_access deny CONNECT lan page
http_access deny !CONNECT lan
http_access allow writes
http_access allow lan
http_access allow localhost
http_port 3128
"""
    assert [(rule["name"], rule["match"]) for rule in rules_of(convert_text(tmp_path, text))] == [
        ("line 6: deny !CONNECT lan", {"clients": ["10.0.0.0/8"], "methods": ["*"]}),
        ("line 7: allow writes", {"methods": ["POST", "PUT"]}),
        ("line 7: allow writes #2", {"tunnel": True}),
        ("line 8: allow lan; line 9: allow localhost", {"clients": ["10.0.0.0/8", "127.0.0.0/8", "::1"]}),
        ("no line matches", {}),
    ]


def test_names_of_rules_count_the_words_that_would_make_them_long(tmp_path: Path) -> None:
    names = " ".join(f"name{number}" for number in range(30))
    acls = "".join(f"acl name{number} src 10.0.0.{number}\n" for number in range(30))
    text = f"{acls}acl any any-of {names}\nhttp_access deny any {names.replace('name', '!name')}\nhttp_port 1\n"
    assert rules_of(convert_text(tmp_path, text))[-1]["name"] == "no line matches"
    text = f"{acls}http_access deny {names.replace('name', '!name')}\nhttp_access allow all\nhttp_port 1\n"
    assert rules_of(convert_text(tmp_path, text))[-1]["name"] == "line 31: deny !name0 !name1 !name2 !name3 !name4 +25"


def test_delay_pools_limit_proxies_and_rules(tmp_path: Path) -> None:
    text = """
acl lan src 10.0.0.0/8
acl slow src 10.9.0.0/16
delay_pools 3
delay_class 1 1
delay_class 2 1
delay_class 3 1
delay_parameters 1 8000/16000
delay_parameters 2 64000/64000
delay_parameters 3 1/1
delay_access 1 allow slow
delay_access 1 deny all
delay_access 2 allow all
delay_access 3 allow all
http_access allow lan
http_access deny all
http_port 3128
"""
    found = convert_text(tmp_path, text)
    assert found.document["proxies"][0]["limits"] == {"bandwidth_out": 64000}
    assert [(rule["match"], rule["action"]) for rule in rules_of(found)] == [
        ({"clients": ["10.9.0.0/16"]}, {"use": "direct", "limits": {"bandwidth_out": 8000}}),
        ({"clients": ["10.0.0.0/8"]}, {"use": "direct"}),
        ({}, {"use": "deny"}),
    ]


def test_certificates_of_ports(tmp_path: Path) -> None:
    text = """
http_port 127.0.0.1:1 ssl-bump cert=/etc/bump.pem generate-host-certificates=on
https_port 127.0.0.1:2 tls-cert=/etc/proxy.pem tls-clientca=/etc/ca.pem
https_port 127.0.0.1:3 tls-cert=/etc/proxy.pem clientca=ca.pem
http_access allow all
"""
    found = convert_text(tmp_path, text)
    assert found.problems == []
    bumped, checked, unsure = found.document["proxies"]
    assert "tls" not in bumped
    assert checked["tls"] == {
        "cert_file": "/etc/proxy.pem",
        "key_file": "/etc/proxy.pem",
        "client_ca": "/etc/ca.pem",
        "client_auth": "require",
    }
    assert unsure["status"] == "inactive"
    assert [each.place.line for each in found.report.remarks if each.place is not None] == [4, 2]


# --- values ---


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
        ("192.0.2.0/255.255.255.0", "192.0.2.255", "192.0.3.0"),
        ("192.0.2.10-192.0.2.19", "192.0.2.19", "192.0.2.20"),
        ("10.0.0.0-10.3.0.0/16", "10.3.255.1", "10.4.0.0"),
        ("2001:db8::/32", "2001:db8:1::", "2001:db9::"),
        ("::ffff:192.0.2.0/120", "192.0.2.7", "192.0.3.7"),
        ("ipv6", "::1", "127.0.0.1"),
    ],
)
def test_addresses(text: str, inside: str, outside: str) -> None:
    found = values.addresses(text)

    def has(address: str) -> bool:
        one = ip_address(address)
        ranges = found.v4.ranges if one.version == 4 else found.v6.ranges
        return any(low <= int(one) <= high for low, high in ranges)

    assert has(inside)
    assert not has(outside)


@pytest.mark.parametrize("text", ["host", "10.0.0", "10.0.0.1-", "10.0.0.9-10.0.0.1", "10.0.0.1-::1", "1.2.3.4/33"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        values.addresses(text)


def test_times_have_the_minute_of_their_end() -> None:
    assert values.minutes(["M", "09:00-17:00"]).ranges == ((540, 1020),)
    assert values.minutes(["08:00-24:00"]).ranges[0] == (480, 1439)
    assert values.minutes(["AS"]).ranges == ((5 * 1440, 7 * 1440 - 1),)
    with pytest.raises(ValueError, match="ends before"):
        values.minutes(["22:00-06:00"])


# --- expressions ---


@pytest.mark.parametrize(
    ("expression", "exact", "below"),
    [
        (r"^www\.example\.com$", {"www.example.com"}, set()),
        (r"\.example\.com$", set(), {"example.com"}),
        (r"(^|\.)example\.com$", {"example.com"}, {"example.com"}),
        (r"^(www|m)\.example\.com$", {"www.example.com", "m.example.com"}, set()),
        (r"^w?ww\.example$", {"www.example", "ww.example"}, set()),
        (r"^.*\.example\.com$", set(), {"example.com"}),
    ],
)
def test_expressions_that_are_names(expression: str, exact: set[str], below: set[str]) -> None:
    assert regexes.names_of(expression) == Names(frozenset(exact), frozenset(below))


@pytest.mark.parametrize(
    "expression",
    [
        "example",
        "example\\.com$",
        "^example",
        "^www.example$",
        "^[ab]\\.example$",
        "^a+\\.example$",
        "^a\\d$",
        "^(a\\.b$",
        ".*",
    ],
)
def test_expressions_that_are_more_than_names(expression: str) -> None:
    with pytest.raises(regexes.NotFinite):
        regexes.names_of(expression)


# --- 3proxy's lines ---


def test_words_of_3proxy(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("anna:CL:one\r\nbert:CL:two\n")
    users = 'users $users "carl:CL:a ""b"""'
    text = f'auth strong\n{users}\n allow another\n#deny *\nallow "anna","bert"\nproxy\nend\ndeny *\n'
    found = convert_text(tmp_path, text, "3proxy")
    assert [account["username"] for account in found.document["accounts"]] == ["anna", "bert", "carl"]
    assert [rule["match"] for rule in rules_of(found)] == [{"accounts": ["anna", "bert"]}, {}]


def test_services_without_authentication_have_no_rules(tmp_path: Path) -> None:
    found = convert_text(tmp_path, "deny *\nproxy -p1\nauth iponly\nproxy -p2\nflush\nproxy -p3\n", "3proxy")
    assert [proxy.get("policy") for proxy in found.document["proxies"]] == [None, "3proxy", None]


def test_names_of_users_never_match_without_passwords(tmp_path: Path) -> None:
    found = convert_text(tmp_path, "auth iponly\nallow anna\nallow * 10.0.0.0/8\nproxy\n", "3proxy")
    assert [rule["match"] for rule in rules_of(found)] == [{"clients": ["10.0.0.0/8"]}, {}]


@pytest.mark.parametrize(
    ("lists", "match"),
    [
        ("* * *.example.com,192.0.2.0/24 80", {"destinations": ["192.0.2.0/24:80"]}),
        ("* * * * HTTP_GET", {"methods": ["GET"]}),
        ("* * * * * 0,6,7 *", "schedule"),
        ("* * * * * * 08:00:00-12:00:00,13:00:00-17:59:59", "schedule"),
    ],
)
def test_lists_of_3proxy(tmp_path: Path, lists: str, match: Any) -> None:
    rules = rules_of(convert_text(tmp_path, f"auth iponly\nallow {lists}\nproxy\n", "3proxy"))
    if match == "schedule":
        assert rules[0]["match"].keys() == {"schedule"}
    else:
        assert rules[0]["match"] == match


@pytest.mark.parametrize(
    "lists", ["* host", "* * *bad*", "* * *bad.example", "* * * x", "* * * * * 9", "* * * * * * 8-9"]
)
def test_what_3proxy_denies_and_can_not_be_checked_is_refused(tmp_path: Path, lists: str) -> None:
    found = convert_text(tmp_path, f"auth iponly\ndeny {lists}\nallow *\nproxy\n", "3proxy")
    assert any(rule["match"] == {} and rule["action"]["use"] == "deny" for rule in rules_of(found)[:2])
    assert found.report.counts()["refuses"] == 1
