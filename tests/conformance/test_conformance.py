"""The product does what its description says, as schemathesis sees it; the long run is `scripts/schemathesis`."""

from __future__ import annotations

import pytest

from tests.conformance.run import run, trying

SHORT = ["--phases", "examples,fuzzing", "--max-examples", "1", "--seed", "1"]
PHASES = """
[phases.examples]
fill-missing = true

[phases.fuzzing.generation]
mode = "negative"
"""
"""Each operation gets what is valid, by an example or made for it, and then a try of what is not."""


@pytest.mark.product
def test_nothing_in_the_description_is_contradicted_by_the_running_product() -> None:
    with trying() as product:
        outcome = run(product, SHORT, PHASES)
    assert outcome.status == 0, outcome.output
    assert outcome.cases > 100
