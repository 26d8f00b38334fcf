"""For all tests: what pytest's `tmp_path` gives lies where the other files of tests do."""

from __future__ import annotations

import os

from tests.folders import FOLDERS

os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", FOLDERS)  # asked for by pytest after this, and handed to its workers
