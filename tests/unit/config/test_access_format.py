"""Access log lines in the formats of other servers, and by templates."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.settings.groups import Logging
from config.text.access_fields import ACCESS_FIELDS, FORMATS, BadTemplate, compiled
from tests.kit.tables import table

NOON = 1_769_860_800.25


def record(**fields: Any) -> dict[str, Any]:
    made: dict[str, Any] = dict.fromkeys(ACCESS_FIELDS, "")
    made |= {
        "timestamp": NOON,
        "client_ip": "192.0.2.7",
        "user": "alice",
        "method": "GET",
        "target_url": "http://example.com:8080/a?b=c",
        "status_code": 200,
        "duration": 17.6,
        "response_time": 5,
        "bytes_in": 120,
        "bytes_out": 4567,
    }
    return made | fields


def line(template: str, **fields: Any) -> str:
    return compiled(FORMATS.get(template, template), ACCESS_FIELDS)(record(**fields))


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        (
            "common",
            '192.0.2.7 - alice [31/Jan/2026:12:00:00 +0000] "GET http://example.com:8080/a?b=c HTTP/1.1" 200 4567',
        ),
        (
            "combined",
            '192.0.2.7 - alice [31/Jan/2026:12:00:00 +0000] "GET http://example.com:8080/a?b=c HTTP/1.1" 200 4567'
            ' "-" "-"',
        ),
        (
            "squid",
            "1769860800.250     18 192.0.2.7 TCP_MISS/200 4567 GET http://example.com:8080/a?b=c alice"
            " HIER_DIRECT/example.com -",
        ),
    ],
)
def test_a_request_in_a_format_of_another_server(form: str, expected: str) -> None:
    assert line(form) == expected


@table(
    ("fields", "result"),
    [
        ({"method": "CONNECT", "target_url": "[2001:db8::1]:443"}, "TCP_TUNNEL/200 CONNECT HIER_DIRECT/[2001:db8::1]"),
        ({"status_code": 403}, "TCP_DENIED/403 GET HIER_NONE/-"),
        ({"status_code": 407, "user": ""}, "TCP_DENIED/407 GET HIER_NONE/-"),
        ({"parent": "berlin 1"}, "TCP_MISS/200 GET FIRSTUP_PARENT/berlin%201"),
        (
            {"method": "CONNECT", "target_url": "x.example:443", "status_code": 502},
            "TCP_MISS/502 CONNECT HIER_DIRECT/x.example",
        ),
    ],
)
def test_what_became_of_a_request_is_said_in_the_words_of_squid(fields: dict[str, Any], result: str) -> None:
    assert line("%Ss/%>Hs %rm %Sh/%<a", **fields) == result


@table(
    ("template", "expected"),
    [
        ("%ts %tu %03tu", "1769860800 250 250"),
        ("[%6tr] [%-6tr] [%06tr]", "[    18] [18    ] [000018]"),
        ("%un %[un %{user}", "alice alice alice"),
        ("100%% %{reason} %{X-Trace}>h", "100% dns_error -"),
        ("%rp %>st", "/a 120"),
    ],
)
def test_a_template_of_the_operator(template: str, expected: str) -> None:
    assert line(template, reason="dns_error") == expected


@table(
    ("target", "path"),
    [
        ("http://example.org/a?b#c", "/a"),
        ("http://example.org", "/"),
        ("http://example.org?b=/c", "/"),
        ("http://[x/a", "/a"),
        ("http://a]b", "/"),
        ("example.org:443", "-"),
    ],
)
def test_any_target_has_a_path_or_none(target: str, path: str) -> None:
    assert line("%rp", target_url=target) == path


@table("template", ["%zz", "%", "%{nothing}", "%>", "a %6"])
def test_a_code_that_does_not_exist_is_refused_with_those_that_do(template: str) -> None:
    with pytest.raises(BadTemplate, match="codes are %ts"):
        compiled(template, ACCESS_FIELDS)
    with pytest.raises(ValueError, match="template"):
        Logging(template=template)


@given(st.text(), st.text(), st.text())
def test_no_value_forges_a_field_of_the_line(user: str, target: str, method: str) -> None:
    assert len(line("squid", user=user, target_url=target, method=method).split()) == 10
    assert line("combined", user=user, target_url=target, method=method).count('"') == 6
    assert len(line("%rp %rm", user=user, target_url="http://" + target, method=method).split()) == 2
