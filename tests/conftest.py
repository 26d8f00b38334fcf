"""For all tests: where pytest's `tmp_path` lies, and how hypothesis judges time.

Not at all: a test on a slow or busy machine is no worse a test.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from tests.kit.folders import FOLDERS

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", FOLDERS)  # asked for by pytest after this, and handed to its workers

settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")
