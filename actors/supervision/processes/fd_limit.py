"""The limit of descriptors. This module imports little: the limit is raised before the zygote is started."""

from __future__ import annotations

import resource


def raise_limit() -> None:
    """As many descriptors as the system allows: every tunnel takes two, and actors inherit the limit."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
