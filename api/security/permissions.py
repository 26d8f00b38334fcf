"""Permissions, the default sets of roles, and which permission implies which."""

from __future__ import annotations

from collections.abc import Collection

ALL = "*"
ADMIN = "admin"
AUDITOR = "auditor"
"""The role that opens the audit trail, for which there is no permission but `admin`."""
PERMISSIONS = (
    "proxy.read",
    "proxy.write",
    "proxy.delete",
    "metrics.read",
    "users.read",
    "users.write",
    "users.delete",
    "settings.read",
    "settings.write",
    ADMIN,
)
GRANTABLE = frozenset({*PERMISSIONS, ALL})
BEYOND_SCOPE = frozenset(("users.write", "users.delete", "settings.write", ADMIN))
"""What no key with a scope may do, whatever its permissions: it affects everything."""

ROLES: dict[str, tuple[str, ...]] = {
    "administrator": (ALL,),
    "operator": ("proxy.read", "proxy.write", "proxy.delete", "metrics.read", "settings.read"),
    "user": ("proxy.read", "metrics.read"),
    AUDITOR: ("proxy.read", "metrics.read", "users.read", "settings.read"),
}
"""The default set of each role."""


def holds(granted: Collection[str], wanted: str) -> bool:
    """Whether `granted` implies `wanted`; `*` and `admin` imply everything."""
    return wanted in granted or ALL in granted or ADMIN in granted


def first_missing(granted: Collection[str], wanted: Collection[str]) -> str | None:
    """The first of `wanted` that `granted` doesn't imply, or None."""
    return next((each for each in wanted if not holds(granted, each)), None)
