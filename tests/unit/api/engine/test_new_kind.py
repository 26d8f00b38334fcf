"""A kind of object that is new has all that the others have."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.kit.folders import ROOT


def test_operations_documents_audit_and_history_follow_from_the_declaration_and_a_row() -> None:
    """In a process of its own, since models and operations are made of the table when they are imported."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.unit.api.notes"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
