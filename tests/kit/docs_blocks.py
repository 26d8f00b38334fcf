"""The fenced blocks of the documents, and which of those with commands no test runs, each with its reason."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.kit.folders import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = ("sh", "console", "bash")
_FENCE = re.compile(r"^( *)```(\w*)(?: title=\"([^\"]+)\")?\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INSTALL = "tests/packaging runs the lines of this page"
_FLEET = "tests/product/cluster and tests/product/cli/test_cluster_commands.py: it needs a PostgreSQL of several nodes"
_SYSTEMD = "tests/product/systemd: it needs a machine that boots"
_OPTIONS = "tests/repository/test_docs_examples.py: its commands and options exist, what they name does not"
_RUN = "tests/product/cli/test_run.py and test_run_isolated.py: it needs namespaces, and hosts with names"


@dataclass(frozen=True)
class Block:
    """A fenced block. `title` is the name of the file that it is, if it is one."""

    page: str
    language: str
    title: str
    text: str

    @property
    def first(self) -> str:
        return self.text.partition("\n")[0]

    @property
    def reason(self) -> str | None:
        """Why no session runs it."""
        first = self.first.removeprefix("$ ")
        found = (why for (page, begins), why in NOT_RUN.items() if page == self.page and first.startswith(begins))
        return next(found, None)


def blocks(document: Path) -> list[Block]:
    """All of a document, in their order."""
    name = str(document.relative_to(ROOT)).removeprefix("docs/")
    return [
        Block(name, language, title, re.sub(f"^{indent}", "", text, flags=re.MULTILINE))
        for indent, language, title, text in _FENCE.findall(document.read_text())
    ]


def is_run(document: Path) -> bool:
    """Whether there is a session of its blocks (`tests/product/e2e/test_docs_sessions.py`)."""
    return any(each.language in COMMANDS and each.reason is None for each in blocks(document))


NOT_RUN = {
    ("README.md", "scripts/build-wheel"): _INSTALL,
    ("getting-started.md", "scripts/serve --lab"): "tests/product/e2e/test_lab.py: the session has a product already",
    ("api.md", "API="): "tests/product/e2e/test_docs_sessions.py, which reads the responses",
    ("command-line.md", "eval"): "tests/product/cli/test_completion.py: it needs each shell",
    ("import.md", "BASE="): "tests/product/e2e/test_import.py: curl asks for a password",
    ("import.md", "curl -su admin"): "tests/product/e2e/test_import.py: curl asks for a password",
    ("how-to/install.md", ""): _INSTALL,
    ("how-to/agents.md", ""): _RUN,
    ("how-to/fleet-in-three-countries.md", ""): _FLEET,
    ("how-to/move-to-postgresql.md", ""): f"{_FLEET}, and tests/unit/api/cluster/test_moving.py",
    ("how-to/restore-the-database.md", ""): f"{_FLEET}, and tests/product/e2e/test_recovery.py",
    ("how-to/behind-pgbouncer.md", ""): f"{_FLEET}, and tests/unit/api/cluster/test_roles.py",
    ("how-to/upgrade-a-fleet.md", ""): _FLEET,
    ("how-to/operate.md", "systemctl status"): _SYSTEMD,
    ("how-to/operate.md", "git pull"): _SYSTEMD,
    ("how-to/clients.md", "certbot"): "the next block, with a certificate of its own: it needs Let's Encrypt",
    ("how-to/observe.md", "proxyfleet webhooks"): "tests/product/e2e/test_webhooks.py: it needs the relay",
    ("how-to/observe.md", "proxyfleet top"): "tests/product/cli/test_top.py: it needs a terminal",
    ("how-to/access.md", "proxyfleet reset-password"): "tests/product/cli/test_lost_password.py: others sign in here",
    (
        "how-to/migrate.md",
        "proxyfleet convert squid.conf --compare",
    ): "tests/product/cli/test_convert.py: it needs a log",
    ("how-to/credentials.md", "curl --fail --silent"): "tests/product/cli/test_job.py: it needs variables of a runner",
    ("how-to/credentials.md", "curl --proxy http"): "tests/product/e2e/test_revocation.py: it needs a secret",
    ("how-to/credentials.md", "me="): "tests/product/e2e/test_self_service.py: it needs a token",
    ("cluster.md", ""): _FLEET,
    ("dns.md", ""): _OPTIONS,
    ("egress.md", ""): "tests/actor/forwarding/test_bind_address.py: it needs routes",
    ("http2.md", ""): "tests/product/e2e/foreign/test_http2.py",
    ("operations.md", ""): _SYSTEMD,
    ("policies.md", ""): _OPTIONS,
    ("pools.md", ""): _OPTIONS,
    ("refusals.md", ""): _OPTIONS,
    ("troubleshooting.md", ""): _OPTIONS,
    ("testing.md", ""): "it is this suite",
    ("dev/testing.md", ""): "it is this suite",
}
"""Page and beginning of a block (nothing: all of the page): what runs it in place of a session, and why."""
