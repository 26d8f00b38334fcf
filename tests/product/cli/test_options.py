"""How a command gets what was typed: tables of options by the API's field, and the usual commands of a kind."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import typer.main

from api.cli import options
from api.cli.application import run
from api.cli.commands import Given, Session, command
from api.cli.options import PROXY, Option, ResourceKind, argument, number, text, texts
from tests.product.cli.commands import all_commands


def typed(table: Mapping[str, Option], *words: str) -> Given:
    """What a command with these options gets."""
    app, got = typer.Typer(), {}
    app.callback()(lambda: None)

    def take(_session: Session, fields: Given) -> None:
        got.update(fields)

    command(app, "take", table)(take)
    assert run(app, ["take", *words]) == 0
    return got


def test_values_come_by_the_dotted_field_and_what_was_not_given_is_none() -> None:
    table = {"quota.bytes": number("--quota", "."), "from": text("--from", ".", parse=str.upper)}
    assert typed(table) == {"quota.bytes": None, "from": None}
    assert typed(table, "--quota", "5", "--from", "7d") == {"quota.bytes": 5, "from": "7D"}


def test_names_become_ids_and_an_empty_option_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ResourceKind, "all", lambda _kind, _api: [{"id": "prx_1", "name": "office"}])
    table = {"one": text("--one", ".", of=PROXY), "more": texts("--more", ".", of=PROXY)}
    assert typed(table, "--one", "office", "--more", "prx_1") == {"one": "prx_1", "more": ["prx_1"]}
    assert typed(table, "--one", "") == {"one": None, "more": None}
    with pytest.raises(AssertionError):
        typed({"proxy": argument("PROXY", ".", of=PROXY)}, "")


def test_each_kind_that_is_found_by_name_has_the_command_that_errors_point_to() -> None:
    known = {f"proxyfleet {name}" for name, _ in all_commands()}
    kinds = [each for each in vars(options).values() if isinstance(each, ResourceKind)]
    assert {each.list_command for each in kinds} <= known
