"""Examples in the documents: commands and options exist, TOML is valid, links lead to headings."""

from __future__ import annotations

import inspect
import json
import re
import shlex
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml
from typer.models import ArgumentInfo, OptionInfo
from wheels.man_page import commands, option_names

from api.cli.application import application
from api.cli.commands import common_options
from api.import_export.document import ConfigDocument
from config.model.shared_objects.policies import PolicyUpdate
from config.settings.settings import Settings
from tests.kit.docs_blocks import COMMANDS, DOCUMENTS, NOT_RUN, blocks
from tests.kit.folders import ROOT
from tests.kit.tables import table

COMMON_OPTIONS = {"-h", "--help"}


@cache
def known_commands() -> dict[str, set[str]]:
    """The options of each command, by its name."""
    common = _options((option, *get_args(option.annotation)[:2]) for option in common_options())
    return {
        command.name: COMMON_OPTIONS | common | _options(command.parameters()) for command in commands(application())
    }


def _options(parameters: Iterable[tuple[inspect.Parameter, Any, ArgumentInfo | OptionInfo]]) -> set[str]:
    names = (option_names(parameter, info) for parameter, _, info in parameters)
    return {option for name in names for each in name.split(", ") for option in each.split("/")}


def invocations(document: Path) -> list[str]:
    """Each call of the command line in a fenced block or in backticks."""
    text = document.read_text()
    blocks = re.findall(r"^ *```(?:sh|console|)\n(.*?)^ *```", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    spans = re.findall(r"`(proxyfleet [^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))
    start = re.compile(r"(?:^|\$ |/bin/|[A-Z_]+=\S+ |^podman exec (?:-it )?proxyfleet )proxyfleet ([a-z].*)")
    calls = [start.search(line.strip()) for line in lines if not line.startswith("Proxyfleet")]
    return [*(call.group(1) for call in calls if call), *(span.removeprefix("proxyfleet ") for span in spans)]


def problem(call: str) -> str | None:
    """What is wrong with a call; None if its command and all its options exist."""
    plain = re.split(r"\s(?:#|\||>|<|&&|;)|;|\)\"", call)[0].replace("…", "x")
    try:
        words = shlex.split(plain)
    except ValueError:
        words = plain.split()
    known = known_commands()
    words = words[: words.index("--")] if "--" in words else words  # the rest is a command of its own
    if not words or words[0].startswith("-") or words[0].isupper():
        return None if not words or words[0] in {"--version", "--help", "-h", "COMMAND"} else f"unknown: {words[0]}"
    name = next((each for each in (" ".join(words[:2]), words[0]) if each in known), None)
    if name is None:
        return None if any(each.startswith(words[0] + " ") for each in known) and len(words) == 1 else "no such command"
    options = [word.split("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    unknown = sorted(set(options) - known[name])
    return f"{name} has no {', '.join(unknown)}" if unknown else None


def test_the_options_of_commands_are_known() -> None:
    assert {"serve", "proxies create", "accounts update", "config show"} <= set(known_commands())
    assert {"--protocol", "--set", "--url", "-o", "--no-keep-alive"} <= known_commands()["proxies create"]
    assert problem("proxies create x --protocoll http") == "proxies create has no --protocoll"
    assert problem("proxy list") == "no such command"
    assert problem("run --quiet -- curl -sS --verbose https://example.com/") is None


@table("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_and_options_in_the_documents_exist(document: Path) -> None:
    wrong = {call: problem(call) for call in invocations(document)}
    assert {call: why for call, why in wrong.items() if why} == {}


def toml_examples() -> list[tuple[str, str]]:
    """Each TOML block with the file that has it."""
    return [
        (path.name, block)
        for path in DOCUMENTS
        for block in re.findall(r"^```toml(?: title=\S+)?\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL)
    ]


@table(("name", "block"), toml_examples())
def test_toml_in_the_documents_is_valid(name: str, block: str) -> None:
    """A block with proxies is a document for `apply`, one with rules a policy, any other a configuration file."""
    content = tomllib.loads(block)
    if "rules" in content:
        PolicyUpdate.model_validate(content)
    elif {"proxies", "users", "webhooks", "settings"} & {
        key for key, value in content.items() if isinstance(value, list)
    }:
        ConfigDocument.model_validate({"kind": "proxyfleet.config", "version": 1} | content)
    else:
        assert sorted(unknown_keys(content)) == [], name


def unknown_keys(content: dict[str, object]) -> list[str]:
    """The dotted keys of a configuration that the settings do not have."""
    found = []
    for group, values in content.items():
        model: object = Settings.model_fields[group].annotation if group in Settings.model_fields else None
        found += _unknown(model, values, group)
    return found


def _unknown(model: object, values: object, path: str) -> list[str]:
    fields = getattr(model, "model_fields", None)
    if model is None:
        return [path]
    if fields is None or not isinstance(values, dict):
        return []
    return [
        each
        for key, value in values.items()
        for each in _unknown(fields[key].annotation if key in fields else None, value, f"{path}.{key}")
    ]


def anchors(document: Path) -> set[str]:
    """The anchors of its headings, as GitHub makes them, and those that it names itself."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    heads = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    named = re.findall(r'<a id="([\w-]+)"></a>', text)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads} | {*named}


@table("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_link_to_a_heading_leads_to_one(document: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#]*)#([^)]+)\)", document.read_text()):
        if "://" not in target:
            path = document.parent / target if target else document
            assert anchor in anchors(path), f"{target}#{anchor}"


def test_every_block_with_commands_is_run_or_says_what_runs_it_in_its_place() -> None:
    """`tests/product/e2e/test_docs_sessions.py` runs all that have no reason; a reason is of a block that there is."""
    found = [each for document in DOCUMENTS for each in blocks(document) if each.language in COMMANDS]
    assert len(found) > 80
    starts = {(each.page, each.first.removeprefix("$ ")) for each in found}
    used = {key for key in NOT_RUN for page, first in starts if page == key[0] and first.startswith(key[1])}
    assert [key for key in set(NOT_RUN) - used if (ROOT / "docs" / key[0]).exists()] == []
    named = [path for reason in NOT_RUN.values() for path in re.findall(r"tests/[\w/]+(?:\.py)?", reason)]
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_a_block_says_what_it_is() -> None:
    """Files that are not commands are read by a test of their own, or shown as what comes out."""
    found = {(each.page, each.language) for path in DOCUMENTS for each in blocks(path)}
    assert sorted(each for each in found if each[1] not in {*COMMANDS, *READ}) == []


READ = {
    "toml": "test_toml_in_the_documents_is_valid",
    "json": "test_json_in_the_documents_is_valid",
    "yaml": "test_yaml_in_the_documents_is_valid",
    "python": "test_python_in_the_documents_compiles",
    "csv": "a file of a session",
    "text": "what comes out, or a file of a session",
    "squid": "a file of a session, and of tests/product/e2e/foreign",
    "haproxy": "tests/product/e2e/foreign/test_http2.py has its like",
    "sql": "tests/unit/api/cluster/test_roles.py",
    "ini": "tests/unit/api/cluster/test_roles.py",
    "": "what comes out",
}
"""Languages of blocks that are no commands, and what reads them."""


def blocks_of(language: str) -> list[tuple[str, str]]:
    return [(each.page, each.text) for path in DOCUMENTS for each in blocks(path) if each.language == language]


@table(("page", "text"), blocks_of("json"))
def test_json_in_the_documents_is_valid(page: str, text: str) -> None:
    json.loads(text)


@table(("page", "text"), blocks_of("yaml"))
def test_yaml_in_the_documents_is_valid(page: str, text: str) -> None:
    assert isinstance(yaml.safe_load(text), dict)


@table(("page", "text"), blocks_of("python"))
def test_python_in_the_documents_compiles(page: str, text: str) -> None:
    compile(text, page, "exec")


def lines_of_the_journal() -> list[str]:
    """What docs/operations.md quotes of the log, except systemd's own line."""
    text = (ROOT / "docs" / "operations.md").read_text()
    table = text.partition("| line in the journal | meaning |")[2].partition("\n\n")[0]
    lines = re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
    return [line for line in lines if "FileDescriptorStoreMax" not in line]


@table("line", lines_of_the_journal())
def test_lines_of_the_log_in_the_documents_are_logged(line: str) -> None:
    code = "\n".join(path.read_text() for part in ("actors", "api") for path in (ROOT / part).rglob("*.py"))
    for piece in filter(None, (piece.strip().removesuffix(":") for piece in line.split("…"))):
        assert piece in code  # without the colon before the cause, which `ThrottledLog` adds


def test_there_are_lines_of_the_log_in_the_documents() -> None:
    assert len(lines_of_the_journal()) >= 5
