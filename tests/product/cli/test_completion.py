"""Completion in real shells: what is offered, and that a name chosen by another user runs nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from api.cli.options import PROXY, plain, script_of
from tests.kit.product import Product
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell, Terminal

EVIL = r"\$(touch ran)"
"""typer's script for zsh evaluated this inside of double quotes at the Tab that was to list it."""


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"{program} is not installed")


@pytest.fixture
def evil(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy(name=EVIL)
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


@pytest.fixture
def env(shell: Shell) -> dict[str, str]:
    """With `proxyfleet` first on the path, as after an installation."""
    folder = shell.home / "bin"
    folder.mkdir()
    (folder / "proxyfleet").symlink_to(shutil.which("proxyfleet", path=str(Path(sys.executable).parent)) or "missing")
    return {**shell.env, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(shell.home)}


@table(
    "name",
    [
        EVIL,
        *("$(id)", "`id`", "a b", "a;b", "a'b", 'a"b', "a\\b", "a*", "~root", "-o", "a:b", "a\u202eb", "a&b"),
        *("=a", ""),
    ],
)
def test_a_name_that_a_shell_reads_as_more_than_its_letters_is_offered_by_its_id(name: str) -> None:
    assert plain({"name": name, "id": "prx_1"}, PROXY) == "prx_1"


@table("name", ["office", "Büro", "世界", "a-b_c.d", "bob@example.com", "eu/west+1"])
def test_a_plain_name_is_offered_as_it_is(name: str) -> None:
    assert plain({"name": name, "id": "prx_1"}, PROXY) == name


def test_the_script_for_zsh_may_also_be_a_file_where_zsh_looks_for_completions() -> None:
    assert script_of("zsh").startswith("#compdef proxyfleet\n")


@needs("zsh")
@pytest.mark.product
def test_zsh_without_a_configuration_completes_and_runs_nothing_of_a_name(
    env: dict[str, str], proxy: dict[str, Any], evil: dict[str, Any]
) -> None:
    with Terminal(["zsh", "-f", "-i"], env) as terminal:
        terminal.type(f"cd {env['HOME']}; eval \"$(proxyfleet completion zsh)\"; echo rea''dy\n")
        terminal.until("ready")

        def completes(begun: str, whole: str) -> bool:
            """One attempt: a busy machine may not respond within the completion's second."""
            seen = len(terminal.text)
            terminal.type(f"\x15proxyfleet proxies stop {begun}\t")
            terminal.type("\x05 mark''ed")  # comes back behind whatever was completed
            terminal.until(lambda text: "mark''ed" in text[seen:])
            return whole in terminal.text[seen:]

        wait_until(lambda: completes(proxy["name"][:9], proxy["name"]), "the name of the proxy")
        wait_until(lambda: completes(evil["id"][:12], evil["id"]), "the id in place of a name that is no word")
        completes("", "whatever there is")
    assert not (Path(env["HOME"]) / "ran").exists()


@needs("fish")
@pytest.mark.product
def test_fish_completes_commands_and_the_names_of_proxies(
    env: dict[str, str], proxy: dict[str, Any], evil: dict[str, Any]
) -> None:
    completions = Path(env["HOME"]) / "proxyfleet.fish"
    completions.write_text(script_of("fish"))

    def complete(line: str) -> list[str]:
        script = f"cd {env['HOME']}; source {completions}; complete -C '{line}'"
        ended = subprocess.run(["fish", "-N", "-c", script], capture_output=True, text=True, timeout=180, env=env)
        return [offered.split("\t")[0] for offered in ended.stdout.splitlines()]

    assert complete("proxyfleet prox") == ["proxies"]
    begun = f"proxyfleet proxies stop {proxy['name'][:9]}"
    wait_until(lambda: complete(begun) == [proxy["name"]], "the name, which a busy machine may have no time for")
    wait_until(lambda: evil["id"] in complete("proxyfleet proxies stop "), "the id of a name that is no word")
    assert not (Path(env["HOME"]) / "ran").exists()
