"""What is printed at a terminal and what in a pipe; Ctrl-C; the completion of a real bash; how fast it starts."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from api.cli.remote.history import AUDIT_COLUMNS as AUDIT
from api.cli.remote.objects import DELIVERIES, WEBHOOKS
from api.cli.terminal import Column, Output, fitting_columns, safe, wrapped_widths
from tests.kit.product import PASSWORD, Product
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.product.cli.shell import Shell

ESCAPE = "\x1b["
BOX = "─│┃━┏╭"


@pytest.mark.product
def test_colours_and_columns_at_a_terminal_and_none_in_a_pipe(shell: Shell, proxy: dict[str, Any]) -> None:
    with shell.terminal("proxies", "list") as terminal:
        assert terminal.end() == 0
    line = next(line for line in terminal.text.splitlines() if proxy["name"] in line)
    assert f"{ESCAPE}32mactive" in line
    assert "\t" not in line
    piped = shell.process("proxies", "list").out
    assert ESCAPE not in piped
    assert not set(BOX) & set(piped)
    assert proxy["name"] in piped


@pytest.mark.product
def test_a_narrow_terminal_gets_fewer_columns_and_whole_cells(shell: Shell, proxy: dict[str, Any]) -> None:
    narrow = shell.screen("proxies", "list", COLUMNS="80")
    line = next(line for line in narrow.out.splitlines() if proxy["name"] in line)
    assert f"127.0.0.1:{proxy['port']}" in line
    assert proxy["id"] not in line
    left_out = narrow.out.partition("Left out: ")[2]
    assert left_out.startswith(("TRANSFERRED, UPTIME, TAGS, ID (", "PROTOCOL, TRANSFERRED, UPTIME, TAGS, ID ("))
    wide = shell.screen("proxies", "list")
    assert (narrow.status, wide.status) == (0, 0)
    assert proxy["id"] in wide.out
    assert "Left out" not in wide.out


@table(("room", "kept"), [(100, [0, 1, 2, 3]), (46, [0, 1, 2, 3]), (45, [0, 1, 2]), (20, [0, 2]), (5, [0, 2])])
def test_the_last_spare_columns_go_first(room: int, kept: list[int]) -> None:
    assert fitting_columns([10, 10, 10, 10], [0, 1, 0, 1], room) == kept


def test_the_sparest_column_goes_before_a_later_one() -> None:
    assert fitting_columns([10, 10, 10], [0, 2, 1], 25) == [0, 2]


@table(
    ("room", "widths"),
    [(100, [10, 60, 20]), (80, [10, 46, 20]), (50, [10, 16, 20]), (20, [8, 8, 20])],
)
def test_the_widest_text_is_wrapped_and_what_must_be_whole_is_not(room: int, widths: list[int]) -> None:
    assert wrapped_widths([10, 60, 20], [0, 1, 2], [False, False, True], room) == widths


def test_a_table_with_a_long_error_stays_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Screen()
    columns = (Column("CREATED", "at", whole=True), Column("LAST", "error"), Column("ID", "id", whole=True))
    error = "a very long error, " * 10
    Output(out=stream).table(
        columns, [{"at": "2026-01-31T12:00:00.000Z", "error": error, "id": "dlv_0123456789abcdef"}]
    )
    lines = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()
    assert max(map(len, lines)) <= 80
    assert "dlv_0123456789abcdef" in lines[1]
    assert "".join(lines).count("very") == 10


def test_details_at_a_terminal_colour_the_words_of_states_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    stream = Screen()
    Output(out=stream).details([("name", "office"), ("state", "running")])
    assert stream.getvalue().splitlines() == [
        f"{ESCAPE}90mname {ESCAPE}0m  office",
        f"{ESCAPE}90mstate{ESCAPE}0m  {ESCAPE}32mrunning{ESCAPE}0m",
    ]


def rows_of_80_columns(monkeypatch: pytest.MonkeyPatch, columns: Sequence[Column], row: dict[str, Any]) -> list[str]:
    monkeypatch.setenv("COLUMNS", "80")
    stream = Screen()
    Output(out=stream, err=io.StringIO()).table(columns, [row])
    return re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()).splitlines()


def test_webhooks_and_their_deliveries_with_errors_stay_within_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = "127.0.0.1 is not a public address; webhooks.allow_private of the configuration would let it"
    hook: dict[str, Any] = {"id": "wh_0123456789abcdef", "name": "operations", "url": "https://hooks.example/proxies"}
    hook |= {"events": ["proxy.stopped"], "enabled": True}
    hook |= {"delivery_status": {"waiting": 2, "last_success_at": None, "last_error": error}}
    delivery: dict[str, Any] = {"id": "dlv_0123456789abcdef", "event": "proxy.stopped", "status": "waiting"}
    delivery |= {"created_at": "2030-01-31T12:00:00.000Z", "next_attempt_at": None}
    delivery |= {"attempts": [{"error": error, "status_code": None}]}
    for columns, row in ((WEBHOOKS, hook), (DELIVERIES, delivery)):
        lines = rows_of_80_columns(monkeypatch, columns, row)
        assert max(map(len, lines)) <= 80, lines
        assert any(row["id"] in line for line in lines)  # a title may be wrapped, too


def test_the_time_of_an_audit_row_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    time = "2030-01-31T12:00:00.000Z"
    row: dict[str, Any] = {"seq": 18, "timestamp": time, "action": "connections_ended", "outcome": "done"}
    row |= {"actor": {"username": "administrator", "type": "user"}, "credential": None, "address": "192.0.2.7"}
    row |= {"resource": {"type": "proxy", "name": "a-long-name-of-a-proxy", "id": "prx_1"}}
    row |= {"details": None, "before": None, "after": None}
    lines = rows_of_80_columns(monkeypatch, AUDIT, row)
    assert time in lines[1]
    assert max(map(len, lines)) <= 80


class Screen(io.StringIO):
    """A terminal in memory."""

    def isatty(self) -> bool:
        return True


@pytest.mark.product
@table("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colours_where_they_are_not_wanted(shell: Shell, proxy: dict[str, Any], env: dict[str, str]) -> None:
    for arguments in (["proxies", "list"], ["proxies", "show", proxy["name"]], ["proxies", "show", "x"]):
        assert f"{ESCAPE}3" in shell.screen(*arguments).out, arguments
        assert f"{ESCAPE}3" not in shell.screen(*arguments, **env).out, arguments
    with shell.terminal("--help", **env) as terminal:
        terminal.end()
    assert f"{ESCAPE}3" not in terminal.text


@pytest.mark.product
def test_a_password_is_asked_for_without_an_echo(stranger: Shell) -> None:
    with stranger.terminal("login") as terminal:
        terminal.until("Password of admin")
        terminal.type(f"{PASSWORD}\n")
        assert terminal.end() == 0
    assert "Signed in" in terminal.text
    assert PASSWORD not in terminal.text


@pytest.mark.product
def test_delete_asks_at_a_terminal_and_does_nothing_when_refused(shell: Shell, proxy: dict[str, Any]) -> None:
    with shell.terminal("proxies", "delete", proxy["name"]) as terminal:
        terminal.until(f"Delete {proxy['name']}?")
        terminal.type("n\n")
        assert terminal.end() == 1
    assert "Nothing was done" in terminal.text
    assert shell("proxies", "delete", proxy["name"]).status == 2  # a pipe can't be asked
    shell.good("proxies", "show", proxy["name"])


@pytest.mark.product
def test_ctrl_c_ends_with_130_and_without_a_traceback(shell: Shell) -> None:
    with shell.terminal("login") as terminal:
        terminal.until("Password of admin")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.text


@pytest.mark.product
def test_ctrl_c_at_a_question_is_a_no_that_ends_with_130(shell: Shell, proxy: dict[str, Any]) -> None:
    with shell.terminal("proxies", "delete", proxy["name"]) as terminal:
        terminal.until("[y/N]")
        terminal.type("\x03")
        assert terminal.end() == 130
    shell.good("proxies", "show", proxy["name"])


@pytest.mark.product
def test_ctrl_c_ends_what_follows_with_130(shell: Shell, proxy: dict[str, Any]) -> None:
    shell("proxies", "test", proxy["name"], "--target", "http://127.0.0.1:1/before")
    with shell.terminal("logs", "--follow") as terminal:
        terminal.until("127.0.0.1:1/before")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert "Traceback" not in terminal.text


@pytest.mark.product
def test_a_reader_that_leaves_early_is_no_error(shell: Shell) -> None:
    command = f"{sys.executable} -m supervisor audit list --limit 1000 | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=180, env=shell.env)
    assert (ended.stdout.strip(), ended.stderr) == ("0", "")


@pytest.mark.product
def test_bash_completes_commands_options_and_the_names_of_proxies(shell: Shell, proxy: dict[str, Any]) -> None:
    folder = shell.home / "bin"
    folder.mkdir()
    (folder / "proxyfleet").symlink_to(shutil.which("proxyfleet", path=str(Path(sys.executable).parent)) or "missing")
    env = {**shell.env, "PATH": f"{folder}:{os.environ['PATH']}"}
    (folder / "script").write_text(shell.good("completion", "bash").out)

    def complete(*words: str) -> list[str]:
        script = (
            f'eval "$(cat {folder}/script)"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
            'spec=$(complete -p proxyfleet); call=${spec##*-F }; ${call%% *} "$1"; printf "%s\\n" "${COMPREPLY[@]}"'
        )
        ended = subprocess.run(
            ["bash", "--norc", "-c", script, "bash", *words], capture_output=True, text=True, timeout=180, env=env
        )
        assert ended.stderr == ""
        return ended.stdout.split()

    assert complete("proxyfleet", "pro") == ["proxies"]
    assert {"list", "start", "stop"} <= set(complete("proxyfleet", "proxies", ""))
    assert complete("proxyfleet", "proxies", "list", "--stat") == ["--status"]
    begun = ("proxyfleet", "proxies", "stop", proxy["name"][:9])
    wait_until(lambda: complete(*begun) == [proxy["name"]], "the name, which a busy machine may have no time for")


@pytest.mark.product
def test_a_completion_without_an_answer_offers_nothing(product: Product, tmp_path: Path) -> None:
    unused = Shell(tmp_path, f"http://127.0.0.1:{product.free_port()}")
    ran = unused.process(_PROXYFLEET_COMPLETE="complete_bash", COMP_WORDS="proxyfleet proxies stop ", COMP_CWORD="3")
    assert (ran.out.strip(), ran.err) == ("", "")


def test_a_start_loads_only_what_it_needs(tmp_path: Path) -> None:
    """Everything else would make every Tab wait."""
    script = """
import sys
from supervisor import main
for arguments in (["--help"], ["version"], ["proxies", "--help"], ["serve", "--help"]):
    sys.argv = ["proxyfleet", *arguments]
    try:
        main()
    except SystemExit:
        heavy = {"requests", "rich", "zmq", "falcon", "cryptography", "config.settings.settings"}
        heavy |= {"msgpack", "actors.supervision.processes.zygote_process"}
        heavy &= set(sys.modules)
        print("loaded:", *sorted(heavy))
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=180, env=Shell(tmp_path).env
    )
    assert [line for line in ended.stdout.splitlines() if line.startswith("loaded:")] == ["loaded:"] * 4


@table("arguments", ["--help", "version", "completion bash"])
def test_output_that_can_not_be_written_is_reported_without_a_traceback(tmp_path: Path, arguments: str) -> None:
    command = f"{sys.executable} -m supervisor {arguments} > /dev/full"
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=180, env=Shell(tmp_path).env
    )
    assert (ended.returncode, ended.stderr) == (1, "proxyfleet: The output can't be written: No space left on device\n")


@table("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_reason_to_fail(tmp_path: Path, closed: str) -> None:
    command = f"{sys.executable} -m supervisor version {closed}"
    ended = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, timeout=180, env=Shell(tmp_path).env
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.product
def test_the_product_itself_loads_neither_rich_nor_requests(product: Product) -> None:
    """A process that runs for months has no use for them; the webhook sender alone makes requests."""
    maps = Path(f"/proc/{product.pid}/maps").read_text()
    assert "site-packages" in maps
    assert "charset_normalizer" not in maps  # the compiled part of what requests brings


def test_what_a_terminal_would_obey_is_shown_as_an_escape() -> None:
    assert safe("a\x1b[31mb\r\nc\x9b\u202ed") == r"a\x1b[31mb\r\nc\x9b\u202ed"
    assert safe("bob\u200b") == r"bob\u200b"  # else it would resemble another name
    assert safe("Grüße, 世界") == "Grüße, 世界"


@pytest.mark.product
@pytest.mark.parametrize("arguments", [("proxies", "list", "-o", "json"), ("export",), ("proxies", "list")])
def test_no_output_has_characters_that_a_terminal_obeys(
    shell: Shell, product: Product, arguments: tuple[str, ...]
) -> None:
    """Names can have characters that are not seen, and other texts such that turn the direction of writing."""
    proxy = product.proxy(name="evil.exe\u200b", description="\u202egnp.exe")
    printed = shell.screen(*arguments, NO_COLOR="1").out
    assert r"evil.exe\u200b" in printed
    assert not set("\u202e\u200b") & set(printed)
    data = shell.good("proxies", "list", "-o", "json").data
    assert proxy["name"] in [each["name"] for each in data["proxies"]]
    product.data("DELETE", f"/proxies/{proxy['id']}")
