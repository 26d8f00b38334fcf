"""A group of settings in a process that loads no models.

The supervisor has validated it and sends it whole, as plain values. Pydantic and the models would cost each such
process 5 MB and 60 ms of its start.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any


def view(group: Mapping[str, Any]) -> Any:
    """The keys of `group` as attributes. Callers annotate what they keep with the group's model."""
    return SimpleNamespace(**group)
