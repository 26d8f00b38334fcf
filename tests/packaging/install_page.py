"""The commands of docs/how-to/install.md, which the tests of packages run."""

from __future__ import annotations

import re

from tests.kit.folders import ROOT

PAGE = ROOT / "docs" / "how-to" / "install.md"


def commands(heading: str) -> list[str]:
    """Those of the first block under a heading, without comments, each on one line."""
    text = PAGE.read_text().partition(f"\n## {heading}\n")[2]
    (block, *_) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = block.replace("\\\n", " ").splitlines()
    return [re.split(r"\s+#", line)[0].strip() for line in lines if line.strip()]
