"""The commands of the documents, page by page, as they are written there; only ports and origins are this test's.

A block with a title is the file that it names. What a `console` block prints has to come, but for numbers and ids.
Which blocks are run elsewhere, and where, is in `tests.kit.docs_blocks`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.docs_blocks import COMMANDS, DOCUMENTS, Block, blocks, is_run
from tests.kit.folders import ROOT
from tests.kit.http_origins import Origin
from tests.kit.ports import free_port, free_ports
from tests.kit.product import PASSWORD
from tests.kit.shared_product import PROMETHEUS_TOKEN
from tests.kit.spare_product import SpareProduct
from tests.product.cli.shell import Ran, signed_in

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
    pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed"),
]
PAGES = [str(each.relative_to(ROOT)) for each in DOCUMENTS if is_run(each)]
ORIGINS = re.compile(r"https?://(?:example\.com|127\.0\.0\.1:8088)/")
PORTS = re.compile(r"(?<=:)(?:1080|8000|3\d{3}|9000)\b|(?:(?<=port )|(?<=port = )|(?<=\"port\": ))(?:1080|3\d{3})\b")
UPSTREAMS = re.compile(r"exit[12]\.example\.net:")
ASKS = ("rollback", "proxies change", "policies delete", "apply")
"""Commands that ask before they change something, where no terminal is: the session says yes."""
OFFICE = "proxyfleet proxies create office --protocol http --port 3128 --tag berlin"
BEFORE = {
    **dict.fromkeys(("docs/accounts.md", "docs/proxies.md", "docs/lists.md", "docs/how-to/operate.md"), OFFICE),
    "docs/how-to/access.md": (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=localhost "
        "-addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
    ),
}
"""What a page takes for granted."""


class Documented(SpareProduct):
    """With upstreams on this machine, which some pages have."""

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "PROXYFLEET_PROXY__UPSTREAMS_ALLOW": '["127.0.0.0/8"]'}


@pytest.fixture(scope="module")
def spare(origin: Origin) -> Iterator[Documented]:
    product = Documented(origin.url("/ip"))
    try:
        yield product
    finally:
        product.discard()


class Session:
    """A terminal in a folder of its own, signed in."""

    def __init__(self, product: Documented, origin: Origin, folder: Path) -> None:
        self.folder = folder
        self._product, self._origin = product, origin
        self._ports: dict[str, str] = {"8080": str(product.port)}
        self._shell = signed_in(product, folder / "home")
        (folder / "data").symlink_to(product.data_dir)
        (folder / "initial").write_text(PASSWORD + "\n")

    def write(self, block: Block) -> None:
        (self.folder / block.title).write_text(self.placed(block.text))

    def run(self, block: Block) -> None:
        """Each command of a block; it has to succeed and print what the block has."""
        if block.language == "console":
            for step in block.text.split("$ ")[1:]:
                command, *printed = step.splitlines()
                self._expect(self.placed(command), printed)
            return
        text = self.placed(block.text.replace("\\\n", " "))
        if re.search(r"^\w+=|^for |\bdone$", text, re.MULTILINE):
            self._bash(text)
            return
        for line in filter(None, (re.split(r"\s{2,}#|^#", each)[0].strip() for each in text.splitlines())):
            self._good(line)

    def placed(self, text: str) -> str:
        """A text of a document with the ports, files and origin of this session."""
        text = ORIGINS.sub(self._origin.url("/hello"), text)
        text = text.replace("data/initial-admin-password", "initial").replace("20000-20009", self._range("20000-20009"))
        text = text.replace("127.0.0.1:8080", f"127.0.0.1:{self._product.port}")
        text = UPSTREAMS.sub("127.0.0.1:", text).replace("at least sixteen characters", PROMETHEUS_TOKEN)
        text = PORTS.sub(lambda found: self._port(found[0]), text)
        text = re.sub(r"(?<=--listen-port )20004", lambda _: self._range("20000-20009").partition("-")[0], text)
        return self._with_revisions(text) if "rollback" in text else text

    def _with_revisions(self, text: str) -> str:
        """41 is the last one here, a change of this office; others were called so before."""
        self._shell.good("proxies", "update", "office", "--add-tag", "paris")
        last = self._shell.good("history", "-o", "json").data["revisions"][0]["revision"]
        office = self._shell.good("proxies", "show", "office", "-o", "json").data["proxy"]["id"]
        text = text.replace("--object office", f"--object {office}")
        return re.sub(r"\b(?:38|40|41)\b", lambda found: str(last - 41 + int(found[0])), text)

    def _port(self, written: str) -> str:
        return self._ports.setdefault(written, str(free_port()))

    def _range(self, written: str) -> str:
        if written not in self._ports:
            ports = free_ports(10)
            self._ports[written] = f"{ports.first}-{ports.last}"
        return self._ports[written]

    def _expect(self, command: str, printed: list[str]) -> None:
        expected = {word for line in printed for word in line.split() if word.isalpha() and not word.isupper()}
        deadline = time.monotonic() + 60  # a record is found within two seconds where nothing else runs
        while True:
            ran = self._good(command)
            missing = expected - set((ran.out + ran.err).split())
            if not missing or not command.startswith("proxyfleet logs") or time.monotonic() > deadline:
                break
        assert not missing, (command, missing, ran)
        if printed and printed[0].isdigit():
            assert ran.out.strip() == printed[0], (command, ran)

    def _good(self, line: str) -> Ran:
        ran = self._bash(line) if re.search(r"[|$<>`;]|&&", line) else self._simple(shlex.split(line))
        assert ran.status == 0, (line, ran)
        return ran

    def _simple(self, words: list[str]) -> Ran:
        if words[0] == "export":
            return Ran(0, "", "")
        if words[0] != "proxyfleet":
            return self._bash(shlex.join(words))
        command = words[1:]
        named = " ".join(command[:2])
        if any(named.startswith(each) for each in ASKS) and not {"--yes", "--dry-run", "--check"} & set(command):
            command.append("--yes")
        return self._shell(*command)

    def _bash(self, script: str) -> Ran:
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**self._shell.env, "PATH": path, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert done.returncode == 0, (script, done.stdout, done.stderr)
        return Ran(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_a_page_works_as_it_is_written(
    page: str, spare: Documented, origin: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spare.begin()
    session = Session(spare, origin, tmp_path)
    session.run(Block(page, "sh", "", BEFORE.get(page, "")))
    for block in blocks(ROOT / page):
        if block.title:
            session.write(block)
        elif block.language in COMMANDS and block.reason is None:
            session.run(block)


def test_the_first_requests_to_the_api_respond_with_success(spare: Documented, origin: Origin, tmp_path: Path) -> None:
    spare.begin()
    session = Session(spare, origin, tmp_path)
    (block,) = (each for each in blocks(ROOT / "docs" / "api.md") if each.language == "sh")
    printed = session._bash(session.placed(block.text).replace("\n", "; echo\n"))
    envelopes = [json.loads(line) for line in printed.out.splitlines() if line.startswith("{")]
    assert len(envelopes) == 3
    assert all(each["success"] for each in envelopes)
