"""The bodies of error responses: what programs and people read, which of both a client gets, and what it can't do."""

from __future__ import annotations

import ast
import importlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from actors.forwarding import stats
from actors.forwarding.access import rules
from actors.forwarding.actor import DRAIN_ENDED
from actors.forwarding.connections.table import ENDED_BY_OPERATOR
from actors.forwarding.limits import accounts
from actors.forwarding.protocols import failures
from actors.forwarding.protocols.failures import Decider, Failure, denied_by_policy
from actors.forwarding.protocols.http.error_body import Asker, error_response, wants_page
from actors.forwarding.protocols.http.head_parser import parse_request
from actors.forwarding.protocols.refusals import ADVICE, DOCS, advice_for
from actors.forwarding.upstreams import http_connect
from config.text.reasons import REASONS, words_of
from tests.kit.folders import ROOT
from tests.kit.tables import table

ASKER = Asker("id0001", "https://help.example/?a=1&b=2", "ads.example", "CONNECT")
DECIDER = Decider("office", "no-ads", "ads", 'policy office, rule "no-ads"')
DENIED = denied_by_policy("docs only", DECIDER, "policy office[0] no-ads")
HOSTILE = "\"</script><script>alert(1)</script>\r\nX-A: 1\r\n\r\n\\\0\x7f\u2028é<!--'&"


def parts(failure: Failure, asker: Asker = ASKER, **how: Any) -> tuple[dict[str, str], bytes]:
    """Fields by name in lower case, and body."""
    head, _, body = error_response(failure, asker, keep_alive=True, **how).partition(b"\r\n\r\n")
    _status, *lines = head.decode("ascii").split("\r\n")
    fields = dict(line.split(": ", 1) for line in lines)
    return {name.lower(): value for name, value in fields.items()}, body


def details(failure: Failure, asker: Asker = ASKER) -> dict[str, Any]:
    fields, body = parts(failure, asker)
    assert fields["content-type"] == "application/problem+json"
    assert int(fields["content-length"]) == len(body)
    found: dict[str, Any] = json.loads(body)
    return found


class Page(HTMLParser):
    """The tags and the text of a page."""

    def __init__(self, failure: Failure, asker: Asker = ASKER) -> None:
        super().__init__()
        self.fields, body = parts(failure, asker._replace(wants_page=True))
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(body.decode())
        assert int(self.fields["content-length"]) == len(body)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


# --- the table ---


def text_of(module: ModuleType, tree: ast.Module, node: ast.expr) -> str | None:
    """The text of an expression: as it is written, that of a name of the module, or what the function assigns it."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if not isinstance(node, ast.Name):
        return None
    found = getattr(module, node.id, None)
    if isinstance(found, str):
        return found
    before = [each for each in ast.walk(tree) if isinstance(each, ast.Assign) and each.lineno < node.lineno]
    for each in sorted(before, key=lambda one: -one.lineno):
        target, value = each.targets[0], each.value
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for name, part in zip(target.elts, value.elts, strict=True):
                if isinstance(name, ast.Name) and name.id == node.id and isinstance(part, ast.Constant):
                    return str(part.value)
    return None


def sent() -> set[tuple[int, str]]:
    """Status and reason of every failure that is written in the forwarding actor."""
    found = set()
    for path in sorted((ROOT / "actors/forwarding").rglob("*.py")):
        module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Failure"):
                continue
            rule = next((each.value for each in node.keywords if each.arg == "rule"), node.args[1])
            reason = text_of(module, tree, rule)
            if isinstance(node.args[0], ast.Constant) and reason is not None:
                found.add((int(str(node.args[0].value)), reason))
    return found - NEVER_SENT


COMPUTED = {
    *((status, kind.decode()) for kind, status in http_connect._TARGET_KINDS.items()),
    (502, "dns_error"),
    (504, "dns_timeout"),
    *((403, f"account_{word}") for word in (rules.DESTINATION_DENIED, rules.DESTINATION_NOT_ALLOWED)),
    (403, f"credential_{rules.DESTINATION_NOT_ALLOWED}"),
    *((403, word) for word in rules.REASONS),
}
"""Where status or reason is put together."""
NEVER_SENT = {(400, reason) for reason in failures.TLS_REASONS} | {
    (400, failures.BAD_PROXY_HEADER),
    (408, failures.LATE_PROXY_HEADER),
}
"""What comes to nothing before there is anyone who speaks HTTP."""


def test_every_refusal_that_is_sent_has_its_advice() -> None:
    written = sent()
    assert len(written) > 40
    assert written | COMPUTED == set(ADVICE)


def test_every_denial_that_is_counted_has_its_advice() -> None:
    reasons = {reason for _status, reason in ADVICE}
    assert stats.DENIALS - reasons == {*failures.TLS_REASONS, failures.BAD_PROXY_HEADER, failures.LATE_PROXY_HEADER}


def aborts() -> set[str]:
    """The reasons for which an exchange that has begun is cut."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "actors/forwarding/protocols").rglob("*.py"))
    calls = (node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call))
    cut = (call.args for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "abort")
    return {str(reason[0].value) for reason in cut if reason and isinstance(reason[0], ast.Constant)}


ENDS = {
    ENDED_BY_OPERATOR,
    DRAIN_ENDED,
    accounts.REMOVED,
    accounts.PASSWORD_CHANGED,
    accounts.CERTIFICATE_REMOVED,
    accounts.NAME_NOT_ENOUGH,
    accounts.REVOKED,
}
"""Of what had passed."""


def test_each_reason_has_a_step_and_words_in_both_languages() -> None:
    rows = [reason for of_step in REASONS.values() for reason in of_step]
    assert len(rows) == len(set(rows))
    written = {reason for _status, reason in ADVICE} | stats.DENIALS | aborts() | ENDS
    assert {reason.partition(".")[0] for reason in rows} == written
    assert set(REASONS["ended"]) == ENDS
    german = (ROOT / "api/ui/source/src/texts/de/reason.ts").read_text()
    assert set(re.findall(r'^  "([\w.]+)":', german, re.MULTILINE)) == {*rows, "reported"}


@table(
    ("reason", "words"),
    [
        ("policy_denied", "denied by a policy"),
        ("reported:destination_denied", "only reported: target denied"),
        ("of_tomorrow", "of_tomorrow"),
        ("", ""),
    ],
)
def test_a_reason_in_words(reason: str, words: str) -> None:
    assert words_of(reason) == words


def test_the_docs_have_the_step_of_each_reason() -> None:
    text = (ROOT / "docs" / Path(DOCS).name).read_text().partition("## Where in the way")[2]
    found = re.findall(r"^\| ([a-z-]+) \| (.*`) \|$", text, re.MULTILINE)
    rows = {step: re.findall(r"`(\w+)`", reasons) for step, reasons in found}
    steps = {step.replace("_", "-"): [each for each in of_step if "." not in each] for step, of_step in REASONS.items()}
    assert rows == {step: reasons for step, reasons in steps.items() if step != "ended"}


def test_the_docs_have_the_rows_of_the_table_and_an_anchor_for_each_reason() -> None:
    text = (ROOT / "docs" / Path(DOCS).name).read_text()
    row = re.compile(r"^\| (?:<a id=\"(\w+)\"></a>)?`(\w+)` \| (\d+) \| (yes|no) \| (.*) \|$", re.MULTILINE)
    rows = {(int(status), reason): (again, step) for _, reason, status, again, step in row.findall(text)}
    assert rows == {key: ("yes" if advice.retryable else "no", advice.next_steps) for key, advice in ADVICE.items()}
    anchors = [anchor for anchor, *_ in row.findall(text) if anchor]
    assert sorted(anchors) == sorted({reason for _status, reason in ADVICE})


def test_the_example_of_the_docs_is_what_a_client_gets() -> None:
    text = (ROOT / "docs" / Path(DOCS).name).read_text()
    example = json.loads(text.split("```json\n")[1].split("```")[0])
    denied = denied_by_policy("builds may reach packages only", Decider("builds", "no-ads", "ads"), "")
    asker = Asker(example["request_id"], example["contact"], "ads.example", "CONNECT")
    assert example == details(denied, asker)


def test_next_steps_are_one_or_two_sentences() -> None:
    for advice in ADVICE.values():
        assert 1 <= len(re.findall(r"[.](?: |$)", advice.next_steps)) <= 2, advice
        assert advice.next_steps.endswith(".")
        assert len(advice.next_steps) < 160


# --- problem details ---


def test_a_program_reads_what_decided_and_what_to_do() -> None:
    assert details(DENIED) == {
        "type": f"{DOCS}#policy_denied",
        "title": "A policy denies the request",
        "status": 403,
        "reason": "policy_denied",
        "next_steps": advice_for(DENIED).next_steps,
        "detail": "docs only",
        "retryable": False,
        "policy": "office",
        "rule": "no-ads",
        "list": "ads",
        "host": "ads.example",
        "method": "CONNECT",
        "request_id": "id0001",
        "contact": ASKER.contact,
    }


def test_what_there_is_not_is_left_out() -> None:
    found = details(failures.CREDENTIALS_WANTED, Asker())
    assert set(found) == {"type", "title", "status", "reason", "next_steps", "detail", "retryable"}


def test_a_plan_that_does_not_disclose_leaves_out_what_decided_and_keeps_the_record() -> None:
    hidden = DENIED.undisclosed()
    fields, body = parts(hidden)
    assert not {"policy", "rule", "list"} & set(json.loads(body))
    assert json.loads(body)["detail"] == "docs only"
    assert fields["proxy-status"] == 'proxyfleet; error=http_request_denied; details="docs only"; rule=policy_denied'
    assert (hidden.sentence, hidden.entry) == ('docs only (policy office, rule "no-ads")', "policy office[0] no-ads")
    assert not re.search("office|no-ads", Page(hidden).text.replace("ads.example", ""))


def test_proxy_status_names_policy_and_rule() -> None:
    assert parts(DENIED)[0]["proxy-status"] == (
        r'proxyfleet; error=http_request_denied; details="docs only (policy office, rule \"no-ads\")";'
        " rule=policy_denied"
    )


@table(
    ("failure", "retryable"),
    [
        (failures.account_quota("total", 0), False),
        (failures.account_quota("month", 60), True),
        (failures.dns_failed("a.example does not resolve"), False),
        (failures.dns_unanswered("a.example", "", False), True),
        (failures.client_requests(7, 3), True),
        (failures.connection_timed_out("slow"), True),
        (failures.prohibited("10.0.0.1 is not a public address"), False),
    ],
)
def test_only_what_may_succeed_without_a_change_is_retryable(failure: Failure, retryable: bool) -> None:
    assert details(failure)["retryable"] is retryable
    again = f"yes, in {failure.retry_after} s" if retryable and failure.retry_after else "yes" if retryable else "no"
    assert f"Try again later\n{again}\n" in Page(failure).text


def test_head_has_no_content_and_its_length() -> None:
    fields, body = parts(DENIED, with_body=False)
    assert (body, fields["content-length"]) == (b"", str(len(parts(DENIED)[1])))


def test_the_challenge_and_the_time_to_wait_stay() -> None:
    assert parts(failures.CREDENTIALS_WANTED)[0]["proxy-authenticate"].startswith("Basic ")
    assert parts(failures.account_requests(3, 17))[0]["retry-after"] == "17"


# --- hostile texts ---

EVIL = Failure(
    403, "http_request_denied", HOSTILE, rule="policy_denied", decider=Decider(HOSTILE, HOSTILE, HOSTILE, HOSTILE)
)
EVIL_ASKER = Asker("id0001", "https://a.example/?'&x", HOSTILE, HOSTILE)


def test_hostile_texts_stay_texts_in_json_and_header() -> None:
    fields, body = parts(EVIL, EVIL_ASKER)
    assert set(fields) == {"proxy-status", "content-type", "content-length", "connection"}
    assert body.isascii()
    assert body.count(b"\n") == 1
    found = json.loads(body)
    assert {found[name] for name in ("detail", "policy", "rule", "list", "host", "method")} == {HOSTILE}


def test_hostile_texts_stay_texts_on_the_page() -> None:
    page = Page(EVIL, EVIL_ASKER)
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in Page(DENIED).tags}
    assert page.text.count("<script>alert(1)</script>") == 6
    assert "X-A" not in " ".join(page.fields)


@pytest.mark.parametrize("wants", [True, False])
def test_bodies_are_bounded(wants: bool) -> None:
    long = "\0" * 1_000_000
    failure = Failure(403, "http_request_denied", long, rule="policy_denied", decider=Decider(long, long, long, ""))
    body = parts(failure, Asker("id", "a@b.example", long, long, wants))[1]
    assert len(body) < 64 * 1024


# --- the page ---


def test_a_browser_reads_the_same_on_a_page_that_loads_nothing() -> None:
    page = Page(DENIED)
    assert page.fields["content-type"] == "text/html; charset=utf-8"
    assert page.fields["content-security-policy"] == "default-src 'none'; style-src 'unsafe-inline'"
    members = details(DENIED)
    assert members.pop("type") not in page.text
    for name, value in members.items():
        shown = {True: "yes", False: "no"}.get(value) if isinstance(value, bool) else str(value)
        assert f"{shown}" in page.text, name
    assert [attrs for tag, attrs in page.tags if "src" in attrs or tag in ("script", "link", "img")] == []
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == [ASKER.contact]
    assert any(attrs.get("name") == "viewport" for _tag, attrs in page.tags)
    assert "color-scheme:light dark" in page.text


def test_the_page_has_labels_for_people_and_whom_to_ask_first() -> None:
    rows = [line for line in Page(DENIED).text.partition(advice_for(DENIED).next_steps)[2].splitlines() if line]
    assert dict(zip(rows[::2], rows[1::2], strict=True)) == {
        "Whom to ask": ASKER.contact,
        "Try again later": "no",
        "Policy that decided": "office",
        "Rule that decided": "no-ads",
        "List that has the target": "ads",
        "Host": "ads.example",
        "Method": "CONNECT",
        "Request id (for the operator)": "id0001",
        "Reason": "policy_denied",
        "Status": "403",
    }
    assert rows[0] == "Whom to ask"


def test_a_mail_address_is_a_link_to_write_to() -> None:
    page = Page(DENIED, ASKER._replace(contact="it@help.example"))
    assert [attrs["href"] for tag, attrs in page.tags if tag == "a"] == ["mailto:it@help.example"]


# --- who gets it ---

CHROME = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
MOZILLA = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"


@table(
    ("accept", "page"),
    [
        (CHROME, True),
        ("TEXT/HTML", True),
        ("*/*", False),
        ("", False),
        ("application/json, text/plain, */*", False),
        ("application/json, text/html", False),
        ("application/json;q=0.5, text/html", True),
        ("application/problem+json, text/html;q=0.9", False),
        ("text/html;q=0, */*", False),
        ("text/html;q=0.000", False),
        ("text/html; level=1 ; q=0.4, application/json;q=0.3", True),
        ("image/avif,image/webp,*/*;q=0.8", False),
        ("application/x-text/html", False),
        ("," * 2000 + "text/html", False),
    ],
)
def test_html_in_accept_makes_a_browser(accept: str, page: bool) -> None:
    head = f"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {MOZILLA}\r\nAccept: {accept}\r\n\r\n"
    assert wants_page(parse_request(head.encode())) is page


def test_accept_in_several_lines_is_one() -> None:
    head = b"GET http://a/ HTTP/1.1\r\nHost: a\r\naccept: application/json\r\nACCEPT: text/html;q=0.9\r\n\r\n"
    assert not wants_page(parse_request(head))


@pytest.mark.parametrize(
    ("agent", "page"), [(MOZILLA, True), ("curl/8.5.0", False), ("", False), ("python-requests/2.32", False)]
)
def test_the_user_agent_alone_makes_a_browser_of_who_connects(agent: str, page: bool) -> None:
    head = f"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {agent}\r\nAccept: text/html\r\n\r\n"
    assert wants_page(parse_request(head.encode())) is page
    without = f"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example\r\nUser-Agent: {agent}\r\n\r\n"
    assert wants_page(parse_request(without.encode())) is page
