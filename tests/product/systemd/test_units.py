"""The unit files by themselves: clean by systemd's own judgement, and how much they expose."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.kit.folders import ROOT

UNITS = ROOT / "systemd"
SERVICES = sorted(UNITS.glob("*.service"))
EXPOSURE_MAX = 2.0

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="missing: systemd-analyze")


def analyze(*arguments: str) -> str:
    done = subprocess.run(
        ["systemd-analyze", "--no-pager", *arguments], capture_output=True, text=True, timeout=180, env={"LC_ALL": "C"}
    )
    return done.stdout + done.stderr


@needs_systemd
@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_a_service_exposes_little(service: object) -> None:
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", analyze("security", "--offline=true", str(service)))
    assert found
    assert float(found[1]) <= EXPOSURE_MAX


@pytest.mark.parametrize("service", SERVICES, ids=lambda path: path.name)
def test_a_service_leaves_no_image_of_its_memory(service: Path) -> None:
    assert "LimitCORE=0" in service.read_text().splitlines()


@needs_systemd
def test_the_backup_runs_every_night() -> None:
    timer = (UNITS / "proxyfleet-backup.timer").read_text()
    calendar = re.search(r"^OnCalendar=(.+)$", timer, re.MULTILINE)
    assert calendar
    said = analyze("calendar", "--iterations=2", calendar[1])
    days = re.findall(r"(?:Next elapse|Iter. #2|Iteration #2): \w+ (\d+-\d+-\d+) 02:30:00", said)
    assert len(set(days)) == 2, said
