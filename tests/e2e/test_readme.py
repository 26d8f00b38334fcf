"""The first session of the README, every line as it is written there; only the addresses are this test's."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.e2e.origins import Origin
from tests.product import PASSWORD, Product

pytestmark = [
    pytest.mark.product,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]

README = Path(__file__).resolve().parents[2] / "README.md"


def session(product: Product, origin: Origin) -> str:
    """The lines, with the ports of this product and the origin in place of example.com."""
    block = re.search(r"```sh\n(.*?)```", README.read_text(), re.DOTALL)
    assert block is not None
    lines = block.group(1).replace(":8080", f":{product.port}").replace("3128", str(product.free_port()))
    return re.sub(r"https?://example\.com/", origin.url("/hello") + r"; echo", lines)


def test_every_line_of_the_first_session_works(origin: Origin, tmp_path: Path) -> None:
    with Product(env={"PROXYFLEET_PROXY__TEST_URL": origin.url("/ip")}) as product:
        (tmp_path / "data").mkdir()
        (tmp_path / "data" / "initial-admin-password").write_text(PASSWORD + "\n")
        lines = session(product, origin).replace('TOKEN"\n', 'TOKEN"; echo\n').replace("}'\n", "}'; echo\n")
        clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        done = subprocess.run(
            ["bash", "-eu", "-c", lines], cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60
        )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.split("\n")[:-1]
    assert answers[:2] == ["hello", "hello"]
    envelopes = [json.loads(answer) for answer in answers[2:]]
    assert len(envelopes) == 7
    assert [each["success"] for each in envelopes] == [True] * 7
    assert envelopes[3]["data"]["test_result"]["status"] == "success"
    assert envelopes[6]["data"]["deleted"] is True
