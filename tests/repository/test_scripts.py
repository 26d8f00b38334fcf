"""The scripts on machines that are not as they should be, and on one that is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.folders import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the scripts need, without an environment."""
    cache = shutil.ignore_patterns("__pycache__")  # other tests write to it meanwhile
    shutil.copytree(ROOT / "scripts", tmp_path / "checkout" / "scripts", ignore=cache)
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "checkout")
    return tmp_path / "checkout"


def script(path: Path, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHON"}
    command = [str(path), *arguments]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        stdin=subprocess.DEVNULL,
    )


def fake_python(folder: Path, body: str) -> str:
    program = folder / "fake-python"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(0o755)
    return str(program)


@pytest.mark.parametrize("name", ["serve", "test", "bench"])
def test_a_python_that_is_too_old_is_named_with_what_is_needed(checkout: Path, tmp_path: Path, name: str) -> None:
    old = fake_python(tmp_path, 'case "$2" in *version_info*) exit 1;; *) echo 3.9.2;; esac')
    done = script(checkout / "scripts" / name, cwd=tmp_path, PYTHON=old)
    assert done.returncode == 1
    assert "Python 3.11 or newer is needed" in done.stderr
    assert "3.9.2" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_python_without_venv_says_what_to_install(checkout: Path, tmp_path: Path) -> None:
    bare = fake_python(tmp_path, 'case "$2" in *ensurepip*) exit 1;; *) exec ' + sys.executable + ' "$@";; esac')
    done = script(checkout / "scripts" / "serve", cwd=tmp_path, PYTHON=bare)
    assert done.returncode == 1
    assert "python3-venv" in done.stderr


def prepared(checkout: Path, tmp_path: Path) -> Path:
    """An environment in place of the real one: pip and the product's program only say that they were called."""
    bin_dir = checkout / ".venv" / "bin"
    bin_dir.mkdir(parents=True)
    calls = tmp_path / "calls"
    python = bin_dir / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in pip) echo "$@" >>{calls};; *) exec {sys.executable} "$@";; esac\n')
    program = bin_dir / "proxyfleet"
    program.write_text('#!/bin/sh\necho "called: $@"\n')
    for file in (python, program):
        file.chmod(0o755)
    return calls


def test_serve_installs_once_and_again_only_when_pyproject_changes(checkout: Path, tmp_path: Path) -> None:
    calls = prepared(checkout, tmp_path)
    for _ in range(2):
        done = script(checkout / "scripts" / "serve", "--port", "9", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, "called: serve --port 9\n"), done.stderr
    assert len(calls.read_text().splitlines()) == 1
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("\n# changed\n")
    script(checkout / "scripts" / "serve", cwd=tmp_path)
    assert len(calls.read_text().splitlines()) == 2


def test_serve_runs_the_pure_version_where_there_is_no_c_compiler(checkout: Path, tmp_path: Path) -> None:
    prepared(checkout, tmp_path)
    done = script(checkout / "scripts" / "serve", "--compiled", "--port", "9", cwd=tmp_path, CC="/nonexistent/cc")
    assert (done.returncode, done.stdout) == (0, "called: serve --port 9\n"), done.stderr
    assert done.stderr.endswith("No C compiler: the pure version runs\n")


def test_an_install_that_fails_is_reported_and_tried_again(checkout: Path, tmp_path: Path) -> None:
    prepared(checkout, tmp_path)
    python = checkout / ".venv" / "bin" / "python"
    python.write_text(f'#!/bin/sh\ncase "$2" in pip) exit 1;; *) exec {sys.executable} "$@";; esac\n')
    for _ in range(2):
        done = script(checkout / "scripts" / "serve", cwd=tmp_path)
        assert done.returncode == 1
        assert "the install failed" in done.stderr


def test_the_fuzzer_names_its_targets_when_it_is_given_another() -> None:
    command = [sys.executable, "-m", "tests.conformance.fuzzing.run", "gopher"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 2
    assert "no target gopher; there are http_requests, http_responses" in ended.stderr
