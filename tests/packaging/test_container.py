"""The Containerfile: hadolint's judgement where there is hadolint, our own rules everywhere."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import pytest

from tests.kit.folders import ROOT

FILE = ROOT / "Containerfile"


def instructions() -> list[tuple[str, str]]:
    """Keyword and the rest, one for each instruction; comments left out, continued lines joined."""
    lines = [line for line in FILE.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    pairs = (line.partition(" ") for line in joined.splitlines())
    return [(keyword, rest.strip()) for keyword, _, rest in pairs]


def last(keyword: str) -> str:
    return [rest for each, rest in instructions() if each == keyword][-1]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    begins = max(number for number, (keyword, _) in enumerate(found) if keyword == "FROM")
    return found[begins:]


def test_all_stages_are_of_one_image_whose_version_is_whole() -> None:
    images = {rest.split()[0] for keyword, rest in instructions() if keyword == "FROM"}
    assert len(images) == 1
    assert re.fullmatch(r"docker\.io/library/python:3\.\d+\.\d+-slim-[a-z]+", images.pop())


def test_it_runs_as_a_numbered_user_that_is_not_root_and_owns_only_the_data() -> None:
    user, _, group = last("USER").partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f"--uid {user}" in FILE.read_text()
    stage = last_stage()
    users = [number for number, (keyword, _) in enumerate(stage) if keyword == "USER"]
    assert all(keyword not in ("RUN", "COPY", "ADD") for keyword, _ in stage[users[0] :])
    assert json.loads(last("VOLUME")) == ["/var/lib/proxyfleet"]


@pytest.mark.parametrize("keyword", ["ENTRYPOINT", "CMD"])
def test_the_program_is_started_without_a_shell_so_that_signals_reach_it(keyword: str) -> None:
    assert json.loads(last(keyword))


def test_it_is_asked_for_its_health_and_stopped_by_the_signal_that_it_knows() -> None:
    options, _, command = last("HEALTHCHECK").partition("CMD ")
    assert json.loads(command)[1:] == ["-m", "api.operator.readiness_probe"]
    assert {"--interval", "--timeout", "--start-period", "--retries"} == set(re.findall(r"--[a-z-]+", options))
    assert last("STOPSIGNAL") == "SIGTERM"


def test_it_names_no_other_host_than_that_of_the_image_and_adds_nothing_from_elsewhere() -> None:
    hosts = set(re.findall(r"[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:io|org|com|net)\b", FILE.read_text()))
    assert hosts == {"docker.io"}
    assert all(keyword != "ADD" for keyword, _ in instructions())
    assert not re.search(r"curl|wget|--index|sudo", FILE.read_text())
    assert not any("apt-get" in rest for _keyword, rest in last_stage()), "the compiler stays in the stage that builds"


def test_secrets_and_data_stay_out_of_the_build() -> None:
    lines = (ROOT / ".containerignore").read_text().split()
    assert lines[0] == "*"
    copied = {name for keyword, rest in instructions() if keyword == "COPY" for name in rest.split()[:-1]}
    assert {f"!{name}" for name in copied if not name.startswith(("-", "/"))} == {
        line for line in lines if line.startswith("!")
    }


@pytest.mark.skipif(shutil.which("hadolint") is None, reason="hadolint is not installed")
def test_hadolint_has_nothing_to_say() -> None:
    done = subprocess.run(["hadolint", str(FILE)], capture_output=True, text=True, timeout=180)
    assert (done.returncode, done.stdout) == (0, "")
