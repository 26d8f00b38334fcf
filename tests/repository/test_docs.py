"""What keeps the documents complete and true: what they name exists, and messages say who may send them."""

from __future__ import annotations

import ast
import inspect
import pydoc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import build_docs
from pydantic import BaseModel
from wheels.man_page import commands

from actors.bus.codec import known_messages
from actors.bus.permissions import SENDERS, may_send
from api.app import OPERATIONS
from api.cli.application import application
from api.operations import Operation
from config.model.events import EVENT_DATA
from config.settings.settings import Settings
from tests.kit.docs_blocks import DOCUMENTS
from tests.kit.folders import ROOT
from tests.kit.openapi_document import document as document_of_the_api
from tests.kit.tables import table

MESSAGES = {name: kind for name, kind in known_messages().items() if kind.__module__.startswith("actors.bus.messages.")}


VALUE = "value, not a message by itself"
PARTIES = {
    "api": {"api"},
    "tls terminator": {"tls"},
    "metrics collector": {"metrics"},
    "log indexer": {"logs"},
    "webhook sender": {"webhooks"},
    "telemetry": {"telemetry"},
    "resolver": {"resolver"},
    "pools": {"pools"},
    "forwarding actor": {"forwarding"},
    "command line": {"command"},
    "supervisor": {"supervisor"},
    "actor": {
        *("api", "tls", "metrics", "logs", "webhooks", "telemetry", "resolver", "proxy-resolver", "pools", "lab"),
        "forwarding",
    },
}
"""The kinds of processes that docstrings of messages call so."""


@cache
def contract(name: str) -> str:
    """The docstring of a message on one line."""
    return (inspect.getdoc(MESSAGES[name]) or "").replace("\n", " ")


def way(name: str) -> tuple[str, str]:
    """Senders and receivers, as its docstring begins."""
    found = re.match(r"([\w, ]+) → ([\w ]+)", contract(name))
    assert found is not None, f"the docstring of {name} does not begin with its way"
    return found[1], found[2]


def test_there_are_messages_to_document() -> None:
    assert len(MESSAGES) > 20


@table("name", MESSAGES)
def test_the_documented_senders_of_a_message_may_send_it_and_no_others(name: str) -> None:
    is_sent = MESSAGES[name] in SENDERS
    if VALUE in contract(name):
        assert not is_sent
        return
    senders, receivers = way(name)
    if is_sent:
        documented = set().union(*(PARTIES[each] for each in re.split(r", | or ", senders.lower())))
        everybody = set().union(*PARTIES.values())
        assert {
            kind for kind in everybody if may_send(f"{kind}.x/1" if kind == "forwarding" else kind, name)
        } == documented
    elif receivers not in ("asker", "events plane"):
        replies = (text.partition(" → ")[2].partition("→")[2] for text in map(contract, MESSAGES))
        assert any(f"`{name}`" in each for each in replies), "it is neither sent nor a reply"


@table("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_file_leads_to_one(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name}: {target}"


@table("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_file_of_the_project_that_is_named_exists(document: Path) -> None:
    pattern = r"`((?:actors|api|config|docs|scripts|systemd|tests)/[\w./-]+|supervisor\.py)`"
    for name in re.findall(pattern, document.read_text()):
        assert (ROOT / name).exists(), f"{document.name}: {name}"


@cache
def modules() -> set[str]:
    return {
        path.name for part in ("actors", "api", "config", "scripts", "tests") for path in (ROOT / part).rglob("*.py")
    }


@table("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_that_is_named_without_its_folder_exists(document: Path) -> None:
    named = set(re.findall(r"`(\w+\.py)`", document.read_text())) - {"supervisor.py"}
    assert named - modules() == set()


@cache
def names_in_docstrings() -> list[tuple[str, str]]:
    """Each dotted name of the product in backticks within a docstring, with the file that has it."""
    files = [
        *(path for part in ("actors", "api", "config") for path in (ROOT / part).rglob("*.py")),
        *ROOT.glob("*.py"),
    ]
    dotted = re.compile(r"`((?:actors|api|config)(?:\.\w+)+)`")
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in files}
    return sorted(
        {
            (path, name)
            for path, text in texts.items()
            if dotted.search(text)  # few have any, and to parse all of them takes seconds
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
            for name in dotted.findall(node.value.value)
        }
    )


def test_there_are_names_in_docstrings() -> None:
    assert len(names_in_docstrings()) > 50


@table(("path", "name"), names_in_docstrings)
def test_every_name_of_the_product_in_a_docstring_exists(path: str, name: str) -> None:
    assert pydoc.locate(name) is not None, f"{path}: `{name}` does not exist"


@cache
def printed_operations() -> dict[str, str]:
    """The printed reference of the API by method and path."""
    parts = "\n".join(build_docs.operations()).split("\n### ")[1:]
    return {part.partition("\n")[0]: part for part in parts}


@table("operation", OPERATIONS, ids=lambda each: each.id)
def test_every_operation_is_printed_with_its_access(operation: Operation) -> None:
    printed = printed_operations()[f"{operation.method} `{operation.path}`"]
    assert operation.summary in printed
    assert f"*Access*: `{operation.access.strip('()')}`" in printed


def test_every_event_is_in_the_page_about_the_api_and_none_that_does_not_exist() -> None:
    section = (ROOT / "docs" / "api.md").read_text().partition("## Events and webhooks")[2].partition("\n- ")[0]
    named: list[str] = []
    for name in re.findall(r"`([a-z_.]+)`", section.partition("|---|---|")[2]):
        group = named[-1].partition(".")[0] if named else ""
        named.append(name if "." in name or f"{group}.{name}" not in EVENT_DATA else f"{group}.{name}")
    assert sorted(each for each in named if not each.startswith("alerts.")) == sorted(EVENT_DATA)


def test_the_printed_reference_has_every_event_and_every_command() -> None:
    events = re.findall(r"^## `(.+)`$", "\n".join(build_docs.events()), re.MULTILINE)
    assert events == list(EVENT_DATA)
    named = re.findall(r"^## (.+)$", "\n".join(build_docs.command_line()), re.MULTILINE)
    assert named == [each.name for each in commands(application())]


def test_the_site_has_every_page_in_its_navigation_once() -> None:
    pages = [page for _, section in build_docs.navigation() for page in section if not page.startswith("reference/")]
    there = {str(each.relative_to(ROOT / "docs")) for each in DOCUMENTS[1:]} - {"index.md"}
    assert sorted(pages) == sorted({*there, "changelog.md"})


def keys_of(model: type[BaseModel], prefix: str = "") -> list[str]:
    """The dotted keys of a settings model."""
    found: list[str] = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        nested = inspect.isclass(inner) and issubclass(inner, BaseModel)
        found += keys_of(inner, f"{prefix}{name}.") if nested else [prefix + name]  # type: ignore[arg-type]
    return found


def keys_in_the_sample() -> Iterator[str]:
    """The dotted keys of docs/proxyfleet.toml, which are commented out."""
    group = ""
    for line in (ROOT / "docs" / "proxyfleet.toml").read_text().splitlines():
        if head := re.match(r"\[([a-z0-9_.]+)\]$", line):
            group = f"{head[1]}."
        elif key := re.match(r"#([a-z0-9_]+) =", line):
            yield group + key[1]


def test_every_key_of_the_configuration_is_documented_and_none_that_does_not_exist() -> None:
    assert sorted(keys_in_the_sample()) == sorted(keys_of(Settings))


def named_tests(document: str) -> list[str]:
    """`path::name` of every test that a document names."""
    return re.findall(r"`(tests/[\w/]+\.py::\w+)`", (ROOT / "docs" / document).read_text())


def words(schema: object) -> Iterator[str]:
    """The names and values that a part of the API's description has."""
    if isinstance(schema, dict):
        yield from schema.get("properties", ())
        yield from (each for each in schema.get("enum", ()) if isinstance(each, str))
        for each in schema.values():
            yield from words(each)
    elif isinstance(schema, list):
        for each in schema:
            yield from words(each)


def parts(name: str) -> str:
    return f"_{re.sub(r'[^a-z0-9]+', '_', name.lower())}_"


ABSENT = {
    "A cache of responses": "http_cache response_cache",
    "Decrypting TLS (`ssl_bump`), ICAP, virus scanners, rewriting": "ssl_bump intercept icap rewrite",
    "HTTP/2 and HTTP/3 between client and proxy, MASQUE": "h2 h3 quic masque",
    "Transparent interception (`TPROXY`, `REDIRECT`)": "tproxy redirect_ports transparent",
    "Obfuscated protocols (Shadowsocks, VMess, Trojan)": "shadowsocks vmess trojan",
    "A reverse proxy": "reverse backends virtual_hosts",
    "Filtering by URL within HTTPS, regular expressions, categories of sites": "regex url_regex categories",
    "SOCKS5 with GSSAPI, datagrams in fragments, IDENT": "gssapi ident fragments",
    "LDAP, RADIUS, Kerberos, NTLM for clients of a proxy": "ldap radius kerberos ntlm",
    "Users of the API from LDAP or SAML": "saml scim",
    "Moving or balancing proxies between [nodes](cluster.md); virtual addresses": "keepalived vrrp virtual_address",
    "Changing the configuration while the database of a fleet is away; elections": "raft etcd consul election",
    "A fleet in another database": "mysql mariadb cockroach",
    "A node that stops forwarding because it was cut off": "fencing quorum",
    "One place for records and series of all nodes": "clickhouse loki timescale",
    "Rates of the API and wrong passwords of clients over nodes": "shared_rates global_rates",
    "Certificates of proxies in the database": "keystore certificate_store",
    "Nodes behind NAT that others can reach": "holepunch relay wireguard",
    "Issuing certificates (ACME)": "acme letsencrypt",
    "Terraform provider, Ansible role": "terraform ansible",
    "rpm; a published image, chart or package": "rpm artifacthub",
    "Windows, macOS, BSD": "macos freebsd launchd",
}
"""By row of docs/not-included.md, words that would be in a name if the product had it."""


def test_what_is_not_included_has_no_name_in_the_product() -> None:
    pages = [each.stem for each in (ROOT / "docs").rglob("*.md") if each.stem not in ("http2", "not-included")]
    pages += [each.name for each in ROOT.iterdir()]
    called = [command.name for command in commands(application())]
    assert called
    names = {*words(document_of_the_api()), *document_of_the_api()["paths"], *keys_of(Settings), *called, *pages}
    present = {parts(each) for each in names}
    rows = re.findall(
        r"^\| (?!not included|---)(.+?) \| ", (ROOT / "docs" / "not-included.md").read_text(), re.MULTILINE
    )
    assert sorted(rows) == sorted(ABSENT)
    for row, absent in ABSENT.items():
        for word in absent.split():
            there = [each for each in present if parts(word) in each]
            assert not there, f"{row!r} is said to be absent, and there is {there}"


CONDITIONS = {
    "accounts": "accounts",
    "destinations": "hosts",
    "methods": "methods",
    "paths": "paths",
    "tunnel": "tunnels",
    "params": "parameters of user names",
    "schedule": "times",
    "clients": "clients",
    "listen_ports": "ports",
    "proxies": "proxies",
    "until": "an end",
}


def test_the_table_beside_other_products_has_all_that_rules_match() -> None:
    (row,) = re.findall(r"^\| rules \| ([^|]+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert document_of_the_api()["components"]["schemas"]["MatchInput"]["properties"].keys() == CONDITIONS.keys()
    assert [each for each in CONDITIONS.values() if each not in row] == []


def test_limits_and_quotas_of_accounts_and_credentials_are_said_to_hold_over_all_proxies() -> None:
    schemas = document_of_the_api()["components"]["schemas"]
    for name in ("RuleLimitsInput", "RuleLimits", "CredentialView", "CredentialCreate"):
        assert "over all proxies" in schemas[name]["description"], name
    page = (ROOT / "docs" / "accounts.md").read_text()
    assert "All hold over all proxies" in page.partition("\n## Limits\n")[2].partition("\n| ")[0]


def test_the_security_page_has_the_ten_points_of_owasp_and_three_of_ours_and_a_test_for_each() -> None:
    points = (ROOT / "docs" / "security.md").read_text().split("\n## ")[1:]
    names = [re.split(r"[:\n]", point)[0] for point in points]
    assert names == [
        *(f"API{number}" for number in range(1, 11)),
        "Names in TLS handshakes",
        "Stolen nodes",
        "Isolated jobs",
    ]
    for point in points:
        assert re.search(r"`tests/[\w/]+\.py::\w+`", point), point


@table("named", named_tests("security.md"))
def test_a_test_that_is_named_exists(named: str) -> None:
    path, _, name = named.partition("::")
    assert f"\ndef {name}(" in (ROOT / path).read_text()


def test_each_test_that_the_page_about_tests_names_exists() -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / "dev" / "testing.md").read_text()))
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(named) > 20
    assert sorted(name for name in named if f"def {name}(" not in tests) == []


def terms_of_the_glossary() -> list[tuple[str, str, str]]:
    """The lines of docs/glossary.md: term, meaning, and the words that are not used for it."""
    text = (ROOT / "docs" / "glossary.md").read_text()
    return re.findall(r"^- \*\*(.+?)\*\*: (.*?)(?:\. Not: (.+))?$", text, re.MULTILINE)


def test_the_glossary_explains_each_term_once_and_rejects_no_term_of_its_own() -> None:
    rows = terms_of_the_glossary()
    terms = [term.strip() for row in rows for term in row[0].split(", ")]
    assert len(terms) > 100
    assert sorted(term for term in set(terms) if terms.count(term) > 1) == []
    assert [row[0] for row in rows if not row[1]] == []
    rejected = {word.strip() for row in rows for word in row[2].split(",")} - {""}
    assert rejected & set(terms) == set()


WORDS = {"": 44_200, "README.md": 450, "docs/api.md": 1_250, "docs/how-to/": 8_800}
"""The most words of all documents that begin so. They may only fall."""
MEDIAN, NINETIETH = 15, 28
"""Words of a sentence."""


def sentences(document: Path) -> list[int]:
    """The number of words of each sentence, in paragraphs and lists; code in a line is one word."""
    text = re.sub(r"^ *```.*?^ *```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"``.*?``|`[^`\n]*`", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^ *(?:[#|<].*|[-*] |\d+\. )", "\n\n", text, flags=re.MULTILINE)
    found = [part for each in re.split(r"\n\s*\n", text) for part in re.split(r"(?<=[.!?])\s+", each)]
    return [count for count in (len(part.split()) for part in found) if count > 1]


@table(("begins", "most"), WORDS.items())
def test_the_documents_are_short(begins: str, most: int) -> None:
    pages = (each for each in DOCUMENTS if str(each.relative_to(ROOT)).startswith(begins))
    assert sum(len(each.read_text().split()) for each in pages) <= most


@table("document", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda path: path.name)
def test_a_recipe_begins_with_what_one_has_at_its_end(document: Path) -> None:
    assert document.read_text().split("\n\n")[1].startswith("At the end ")


def test_their_sentences_are_short() -> None:
    counts = sorted(count for document in DOCUMENTS for count in sentences(document))
    assert counts[len(counts) // 2] <= MEDIAN
    assert counts[len(counts) * 9 // 10] <= NINETIETH


def test_a_sentence_is_counted_in_paragraphs_and_lists_without_code_and_tables(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = (
        "# A head\n\nIt runs `a b c`, and\nends. So [it is](x.md).\n\n```\nno one. reads\n```\n- One two.\n| a | b |\n"
    )
    page.write_text(text)
    assert sentences(page) == [5, 3, 2]


PRIVATE_WORDS = re.compile(
    r"\b(wish|wishes|wished|elders?|heirs?|bequeath\w*|bequests?|whoever|whomever|nobody|somebody|complaints?"
    r"|what is (?:really )?so|(?:is|are|was|were|be) told|turn(?:s|ed)? away|parents?)\b",
    re.IGNORECASE,
)
PLAIN = [ROOT / "CHANGELOG.md", *(path for path in DOCUMENTS if path.name != "glossary.md")]  # it has rejected words


def prose(document: Path) -> str:
    """A document without its code."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"``.*?``|`[^`\n]*`", "", text)


@table("document", PLAIN, ids=lambda path: path.name)
def test_the_prose_uses_the_words_of_the_glossary(document: Path) -> None:
    assert [line for line in prose(document).splitlines() if PRIVATE_WORDS.search(line)] == []


def test_the_changelog_says_what_was_added_changed_and_fixed() -> None:
    """Each release has these sections in this order, and a line has at most 500 characters."""
    for release in (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]:
        sections = re.findall(r"^### (.*)$", release, re.MULTILINE)
        assert sections == [each for each in ("Added", "Changed", "Fixed", "Removed") if each in sections]
    assert [line for line in (ROOT / "CHANGELOG.md").read_text().splitlines() if len(line) > 500] == []
