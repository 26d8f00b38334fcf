"""The secrets of credentials, by their form alone: `pfc_` and 40 letters and digits."""

from __future__ import annotations

import re

PREFIX = b"pfc_"
_SECRET = re.compile(rb"pfc_[0-9A-Za-z]{40}")
_PREFIX_LENGTH = 11
"""Characters that the product keeps and shows, by which people recognize a secret."""


def is_secret(value: bytes) -> bool:
    """Whether it has the form of a secret."""
    return value.startswith(PREFIX) and _SECRET.fullmatch(value) is not None


def masked(user: str) -> str:
    """A user name as it may be recorded: of a secret that came in its place the beginning."""
    return f"{user[:_PREFIX_LENGTH]}…" if user.startswith("pfc_") and len(user) > _PREFIX_LENGTH else user
