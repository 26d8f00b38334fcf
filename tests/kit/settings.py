"""The settings as actors get them at their start: the defaults, with what a test wants otherwise."""

from __future__ import annotations

from typing import Any

from config.settings.settings import Settings, plain


def boot_settings(**changes: dict[str, Any]) -> dict[str, Any]:
    """All groups, with the keys of `changes` in them; `server` by its parts, too."""
    groups = {**plain(Settings()), "egress": {"own": []}}
    for name, keys in changes.items():
        groups[name] = {**groups[name], **keys}
    quota_offline = {"cluster.quota_offline": groups["cluster"]["quota_offline"]}
    return {**groups, "server.tls": groups["server"]["tls"], **quota_offline}
