"""For the build of the wheel: it must have the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    """Refuses to build a wheel without the page. An editable install finds it in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  # the signature is hatchling's
        """Raises `FileNotFoundError` where the page is missing."""
        page = Path(self.root, "api", "ui", "static", "index.html")
        if version != "editable" and not page.is_file():
            raise FileNotFoundError(f"{page}: the wheel needs the dashboard; scripts/build-ui makes it")
