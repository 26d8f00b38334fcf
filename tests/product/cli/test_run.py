"""`proxyfleet run`: what the job has and lacks, that it is in the foreground, and what is left of it when it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from config.text.formatting import parse_moment
from tests.kit.curl import needs_curl
from tests.kit.http_origins import Origin, serving
from tests.kit.product import Product
from tests.kit.tables import table
from tests.kit.wait import wait_until
from tests.product.cli.shell import Ran, Shell

pytestmark = [pytest.mark.product, needs_curl]

CURL = "curl -sS -m 60 -o /dev/null"


@dataclass(frozen=True)
class Runner:
    """A machine that runs jobs: it has a key that may only make credentials of its account."""

    shell: Shell
    account: str
    key: str
    product: Product

    def __call__(self, *arguments: str, **env: str) -> Ran:
        return self.shell.process("run", "--account", self.account, *arguments, PROXYFLEET_API_KEY=self.key, **env)

    def here(self, *arguments: str, **env: str) -> Ran:
        """In this process; what the job itself prints is not seen."""
        return self.shell("run", "--account", self.account, *arguments, PROXYFLEET_API_KEY=self.key, **env)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """A process that is started and not waited for; it prints to a pipe."""
        command = [sys.executable, "-m", "supervisor", "run", "--account", self.account, *arguments]
        env = {**self.shell.env, "PROXYFLEET_API_KEY": self.key}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)

    def may_use(self, *proxies: dict[str, Any]) -> None:
        """Let the account use these proxies and no other."""
        self.product.data("PATCH", f"/accounts/{self.account}", {"proxies": {"ids": [each["id"] for each in proxies]}})

    def credentials(self) -> list[dict[str, Any]]:
        """Those of the account that there are."""
        found: list[dict[str, Any]] = self.product.data("GET", f"/accounts/{self.account}/credentials")["credentials"]
        return found


@pytest.fixture(scope="module")
def team(product: Product) -> Iterator[dict[str, Any]]:
    made = product.proxy(name="team", auth={"enabled": True})
    yield made
    product.api("DELETE", f"/proxies/{made['id']}")


@pytest.fixture
def runner(product: Product, team: dict[str, Any], tmp_path: Path) -> Iterator[Runner]:
    assert team["protocol"] == "http"
    account = product.data("POST", "/accounts", {"username": "ci", "proxies": {"ids": [team["id"]]}})["account"]["id"]
    scope = {"permissions": ["proxy.write"], "scope": {"accounts": [account]}, "name": "runner"}
    key = product.data("POST", "/api-keys", scope)
    yield Runner(Shell(tmp_path / "home", product.base_url), account, key["key"], product)
    product.api("DELETE", f"/accounts/{account}")
    product.api("DELETE", f"/api-keys/{key['api_key']['id']}")


def test_the_job_has_the_proxy_in_all_spellings_and_no_key(runner: Runner, team: dict[str, Any]) -> None:
    script = "import json, os; print(json.dumps(dict(os.environ)))"
    own = {"ftp_proxy": "http://other.example:1", "no_proxy": "other.example", "npm_config_noproxy": "x"}
    env = json.loads(runner("--quiet", "--", sys.executable, "-c", script, **own).out)
    url = env["HTTP_PROXY"]
    assert re.fullmatch(rf"http://ci:pfc_\w{{40}}@127\.0\.0\.1:{team['port']}", url)
    assert {env[name] for each in ("http", "https", "all") for name in (f"{each}_proxy", f"{each}_proxy".upper())} == {
        url
    }
    assert env["no_proxy"] == env["NO_PROXY"] == "localhost,127.0.0.1,::1"
    assert env["NODE_USE_ENV_PROXY"] == "1"
    assert env["HOME"] == os.environ["HOME"]
    assert not [name for name in env if name.startswith("PROXYFLEET_") or name in ("ftp_proxy", "npm_config_noproxy")]
    assert runner.key not in json.dumps(env)


def test_neither_key_nor_secret_is_an_argument_or_in_the_environment_of_the_one_that_waits(runner: Runner) -> None:
    seen = runner(
        "--quiet", "--", "sh", "-c", "tr '\\0' '\\n' < /proc/$PPID/environ; cat /proc/*/cmdline | tr '\\0' '\\n'"
    )
    assert "PROXYFLEET_API_KEY=" in seen.out
    assert runner.key not in seen.out
    assert "pfc_" not in seen.out


def test_streams_and_exit_status_are_those_of_the_command_and_nothing_is_left(runner: Runner) -> None:
    env = {**runner.shell.env, "PROXYFLEET_API_KEY": runner.key}
    command = [sys.executable, "-m", "supervisor", "run", "--account", runner.account, "--quiet", "--", "sh", "-c"]
    script = "cat; echo problem >&2; exit 42"
    ended = subprocess.run([*command, script], input=b"in\0put\xff", capture_output=True, env=env, timeout=180)
    assert (ended.returncode, ended.stdout, ended.stderr) == (42, b"in\0put\xff", b"problem\n")
    assert runner.credentials() == []


def test_a_summary_that_can_not_be_written_does_not_change_the_exit_status(runner: Runner) -> None:
    env = {**runner.shell.env, "PROXYFLEET_API_KEY": runner.key}
    command = [sys.executable, "-m", "supervisor", "run", "--account", runner.account, "--allow", "x.example", "--"]
    script = f"{CURL} http://a.example/ 2>/dev/null; exit 5"
    read_end, gone = os.pipe()
    os.close(read_end)
    readers = {"full": os.open("/dev/full", os.O_WRONLY), "gone": gone}
    started = {
        reader: subprocess.Popen([*command, "sh", "-c", script], stderr=errors, env=env)
        for reader, errors in readers.items()
    }
    for errors in readers.values():
        os.close(errors)
    assert {reader: process.wait(180) for reader, process in started.items()} == {"full": 5, "gone": 5}
    assert runner.credentials() == []


@table(
    ("arguments", "status", "said"),
    [
        (["no-such-command"], 127, "is in PATH"),
        (["/no/such/command"], 127, "Check its path"),
        (["/etc/passwd"], 126, "chmod +x /etc/passwd"),
        (["/etc"], 126, "It is a directory"),
        (["sh", "-c", "kill -KILL $$"], 137, ""),
        (["--ttl", "0s", "true"], 2, "must be from 1s to 400d"),
        (["--ttl", "0", "true"], 2, "must be from 1s to 400d"),
        (["--ttl", "soon", "true"], 2, "--ttl"),
        (["--allow", "no such host!", "true"], 1, "allow_destinations[0] (--allow)"),
        (["--proxy", "teem", "true"], 5, "Did you mean 'team'"),
        (["--proxy", "127.0.0.1:3128", "true"], 2, "has no scheme"),
        (["--proxy", "ftp://x.example", "true"], 2, "--proxy"),
        (["--proxy", "http://u:p@x.example:1", "true"], 2, "must not hold a password"),
        (["--proxy-ca", "/no/file", "true"], 2, "--proxy-ca: /no/file"),
        (["--credential", "/no/file", "true"], 2, "--account and --credential"),
        ([], 2, "COMMAND"),
    ],
)
def test_what_can_not_be_run_leaves_no_credential(runner: Runner, arguments: list[str], status: int, said: str) -> None:
    ran = runner.here("--quiet", *arguments)
    assert (ran.status, said in ran.err) == (status, True), ran.err
    assert runner.credentials() == []


def test_what_a_key_lacks_is_said_with_what_to_give(runner: Runner, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("ci:secret\n")

    def said(*arguments: str, key: str = runner.key) -> str:
        return runner.shell("run", *arguments, "--", "true", PROXYFLEET_API_KEY=key).err

    assert "Give the URL of the proxy" in said("--credential", str(file))
    assert "names the account by its id" in said("--account", "ci")
    assert "names the account by its id" not in said("--account", "ci", key="pf_" + "0" * 40)


def test_what_was_refused_is_said_on_standard_error_with_what_would_allow_it(
    runner: Runner, product: Product, team: dict[str, Any]
) -> None:
    other = product.proxy(name="other-job", auth={"enabled": True})
    runner.may_use(team, other)
    job = ("--allow", "x.example", "--proxy", "other-job", "--", *shlex.split(f"{CURL} http://y.example/"))
    assert runner.here("--quiet", *job).status == 0
    runner.may_use(team)
    rules = [
        {"name": "no", "match": {"destinations": ["b.example"]}, "action": {"use": "deny"}},
        {"name": "stop", "match": {"destinations": ["c.example"]}, "action": {"use": "deny", "reason": "not here"}},
    ]
    policy = product.data("POST", "/policies", {"name": "fence", "rules": rules})["policy"]["id"]
    product.data("PATCH", f"/accounts/{runner.account}", {"policy": "fence"})
    hosts = "http://a.example/ https://a.example/ https://b.example:8443/ https://b.example:8443/x https://c.example/"
    script = f"for url in {hosts}; do {CURL} $url; done 2>/dev/null; exit 5"
    allowed = [word for each in ("b.example", "c.example") for word in ("--allow", each)]
    ran = runner(*allowed, "--", "sh", "-c", script)
    assert (ran.status, ran.out) == (5, "")
    lines = ran.err.splitlines()
    assert lines[0] == "proxyfleet: refused to this job: 5 requests"
    listed = {" ".join(line.split()[:3]) for line in lines[1:5]}
    assert listed == {
        "2 b.example:8443 policy_denied",
        "1 c.example:443 policy_denied",
        "1 a.example:80 credential_destination_not_allowed",
        "1 a.example:443 credential_destination_not_allowed",
    }, ran.err
    assert "  --allow a.example:443 --allow a.example:80" in lines
    assert "fence" in ran.err
    start = lines.index("  [[rules]]")
    assert lines[start + 5] == "  proxyfleet policies update NAME --from FILE"
    text = "\n".join(line[2:] for line in lines[start : start + 4])
    assert tomllib.loads(text) == {
        "rules": [
            {
                "name": "allow b.example:8443 and others",
                "match": {"accounts": ["ci"], "destinations": ["b.example:8443", "c.example:443"]},
                "action": {},
            }
        ]
    }
    quiet = runner.here("--quiet", "--allow", "x.example", "--", "sh", "-c", f"{CURL} http://a.example/")
    assert "refused" not in quiet.err
    product.data("PATCH", f"/accounts/{runner.account}", {"policy": None})
    product.api("DELETE", f"/policies/{policy}")
    product.api("DELETE", f"/proxies/{other['id']}")


def test_the_lines_of_the_summary_allow_what_was_refused(runner: Runner, product: Product, tmp_path: Path) -> None:
    """They are put in front of the rule that refused, as they are."""
    deny = {"name": "no", "match": {}, "action": {"use": "deny"}}
    policy = product.data("POST", "/policies", {"name": "closed", "rules": [deny]})["policy"]["id"]
    product.data("PATCH", f"/accounts/{runner.account}", {"policy": "closed"})
    fetch = ["--", *shlex.split(f"{CURL} -w '%{{http_code}}' --noproxy '' http://127.0.0.9:9/")]
    refused = runner(*fetch)
    assert refused.out == "403"
    lines = refused.err.splitlines()
    file = tmp_path / "policy.toml"
    start = lines.index("  [[rules]]")
    more = '\n[[rules]]\nname = "no"\nmatch = {}\naction = { use = "deny" }\n'
    file.write_text("\n".join(line[2:] for line in lines[start : start + 4]) + more)
    admin = Shell(tmp_path / "admin", product.base_url)
    admin.login()
    admin.good("policies", "update", "closed", "--from", str(file))
    assert runner("--quiet", *fetch).out == "502", "it is allowed now, and no one listens there"
    product.data("PATCH", f"/accounts/{runner.account}", {"policy": None})
    product.api("DELETE", f"/policies/{policy}")


def test_another_name_in_the_handshake_is_said_with_both_names(runner: Runner, product: Product) -> None:
    with Origin() as origin, serving(origin):
        port = origin.port
        proxy = product.proxy(name="checked", auth={"enabled": True}, tls_ports=[port])
        runner.may_use(proxy)
        to = f"--noproxy '' --connect-to other.example:443:localhost:{port} https://other.example/"
        options = ("--proxy", "checked", "--allow", f"localhost:{port}")
        ran = runner(*options, "--", "sh", "-c", f"{CURL} {to} 2>/dev/null")
        assert ran.status == 35, "curl says so for an alert in the handshake"
        listed = ran.err.splitlines()[1]
        assert f"localhost:{port}  tls_name_denied (mismatch:" in listed
        assert "other.example" in listed
        assert '  action = { tls_name = "record" }' in ran.err.splitlines()
        assert origin.seen == []
        product.api("DELETE", f"/proxies/{proxy['id']}")


def test_a_terminal_that_hangs_up_leaves_no_credential(runner: Runner) -> None:
    run = ("run", "--account", runner.account, "--quiet", "--", "sh", "-c", "echo $((30+1)); exec sleep 600")
    with runner.shell.terminal(*run, PROXYFLEET_API_KEY=runner.key) as terminal:
        terminal.until("31")
        assert len(runner.credentials()) == 1
        terminal.hang_up()
        terminal.process.wait(60)
    assert runner.credentials() == []


def test_a_signal_reaches_the_command_and_the_credential_is_revoked(runner: Runner) -> None:
    script = "trap 'echo ending; exit 9' TERM; echo ready; while :; do sleep 0.05; done"
    with runner.start("--quiet", "--", "sh", "-c", script) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(runner.credentials()) == 1
        process.send_signal(signal.SIGTERM)
        assert process.stdout.read() == "ending\n"
        assert process.wait(60) == 9
    assert runner.credentials() == []


def test_ctrl_c_at_the_terminal_ends_the_command_alone(runner: Runner) -> None:
    run = ("run", "--account", runner.account, "--quiet", "--", "sh", "-c", "echo ready; exec sleep 600")
    with runner.shell.terminal(*run, PROXYFLEET_API_KEY=runner.key) as terminal:
        terminal.until("ready")
        terminal.type("\x03")
        assert terminal.end() == 130
    assert runner.credentials() == []


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="bash is not installed")
def test_an_interactive_shell_has_its_job_control(runner: Runner) -> None:
    run = ("run", "--account", runner.account, "--quiet", "--", "/bin/bash", "--norc", "-i")
    with runner.shell.terminal(*run, PROXYFLEET_API_KEY=runner.key, PS1="$((1+1))> ") as terminal:
        terminal.until("2> ")
        assert "no job control" not in terminal.text
        terminal.type("sh -c 'echo $((30+1)); exec sleep 600'\n")
        terminal.until("31\r\n")
        terminal.type("\x1a")
        terminal.until("Stopped")
        terminal.type("kill -KILL %1; wait -f %1; echo $((40+2))\n")
        terminal.until("42\r\n")
        terminal.type("exit 17\n")
        assert terminal.end() == 17
    assert runner.credentials() == []


def test_the_credential_of_one_that_was_killed_lapses(runner: Runner) -> None:
    fetch = f"{CURL} -w '%{{http_code}}\\n' --noproxy '' http://127.0.0.9:9/"
    script = f"{fetch}; read _; {fetch}"
    command = [sys.executable, "-m", "supervisor", "run", "--account", runner.account]
    command += ["--ttl", "4s", "sh", "-c", script]
    env = {**runner.shell.env, "PROXYFLEET_API_KEY": runner.key}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "502\n"
        process.kill()
        process.wait()
        (left,) = runner.credentials()
        wait_until(lambda: time.time() > parse_moment(left["expires_at"]), "its time is over")
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "403\n", "the job has lived on without its credential"
