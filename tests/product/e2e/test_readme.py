"""The first sessions of README.md and docs/api.md, as they are written there; only the addresses are this test's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.kit.folders import ROOT
from tests.kit.http_origins import Origin
from tests.kit.product import PASSWORD, Product

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

README = ROOT / "README.md"
API = ROOT / "docs" / "api.md"


def session(product: Product, origin: Origin) -> str:
    """The lines, with the ports of this product and the origin in place of example.com."""
    block = re.search(r"```sh\n(.*?)```", API.read_text(), re.DOTALL)
    assert block is not None
    lines = block.group(1).replace(":8080", f":{product.port}").replace("3128", str(product.free_port()))
    return re.sub(r"https?://example\.com/", origin.url("/hello") + r"; echo", lines)


def test_every_line_of_the_first_requests_to_the_api_works(
    own_product: Product, origin: Origin, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "initial-admin-password").write_text(PASSWORD + "\n")
    lines = session(own_product, origin).replace('TOKEN"\n', 'TOKEN"; echo\n').replace("}'\n", "}'; echo\n")
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    done = subprocess.run(
        ["bash", "-eu", "-c", lines], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    responses = done.stdout.split("\n")[:-1]
    assert responses[:2] == ["hello", "hello"]
    envelopes = [json.loads(response) for response in responses[2:]]
    assert len(envelopes) == 7
    assert [each["success"] for each in envelopes] == [True] * 7
    assert envelopes[3]["data"]["test_result"]["status"] == "success"
    assert envelopes[6]["data"]["deleted"] is True


def steps(product: Product, origin: Origin) -> list[tuple[str, list[str]]]:
    """The commands of the README's session with the lines that it shows for each."""
    block = re.search(r"```console\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    text = block.group(1).replace(":8080", f":{product.port}").replace("3128", str(product.free_port()))
    text = text.replace("proxyfleet login ", f"proxyfleet login --url http://127.0.0.1:{product.port} ")
    parts = text.replace("http://example.com/", origin.url("/hello")).split("$ ")[1:]
    return [(part.splitlines()[0], part.splitlines()[1:]) for part in parts if not part.startswith("export ")]


def words(line: str) -> set[str]:
    """What is the same in every run: no numbers, ids or times."""
    return {word for word in line.split() if word.isalpha() and not word.isupper()}


def test_every_command_of_the_readme_prints_what_is_shown_there(
    own_product: Product, origin: Origin, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "initial-admin-password").write_text(PASSWORD + "\n")
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    clean |= {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "XDG_CONFIG_HOME": str(tmp_path)}
    for command, shown in steps(own_product, origin):
        expected = set().union(*(words(line) for line in shown))
        deadline = time.monotonic() + 120  # a record is found within two seconds where nothing else runs
        while True:
            done = subprocess.run(
                ["bash", "-c", command], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=180
            )
            detail = set((done.stdout + done.stderr).split())
            if expected <= detail or not command.startswith("proxyfleet logs") or time.monotonic() > deadline:
                break
        assert done.returncode == 0, (command, done.stderr)
        assert expected <= detail, (command, expected - detail)
        if shown[0].isdigit():
            assert done.stdout.strip() == shown[0], command
