"""What `proxyfleet serve` prints when it runs."""

from __future__ import annotations

import json
from pathlib import Path

from api.cli.local.serve import greeting
from config.files.paths import DataDir
from tests.kit.tables import table

BASE = "http://127.0.0.1:8080"


@table(
    "node, signs_in",
    [(None, True), ({"role": "full"}, True), ({"role": "edge"}, False), ([], True)],
)
def test_who_starts_an_edge_node_is_not_sent_to_a_sign_in_that_it_refuses(
    tmp_path: Path, node: object, signs_in: bool
) -> None:
    data = DataDir(tmp_path)
    data.cluster.mkdir(exist_ok=True)
    data.node.unlink(missing_ok=True)
    if node is not None:
        data.node.write_text(json.dumps(node))
    text = greeting(BASE, data, "proxyfleet", "")
    assert ("sign in   proxyfleet login" in text, f"{BASE}/ui/" in text) == (signs_in, signs_in)
    assert ("proxyfleet cluster status" in text) is not signs_in
