"""Secrets that systemd gives to the service (LoadCredential=, systemd.exec(5)): files that only the service can read.

They lie in `$CREDENTIALS_DIRECTORY`, in memory that is never swapped out, and are gone with the service. So they are in
no environment, which children inherit, and in no file of the data directory. An empty one counts as not given: that is
how a unit says that a credential may be missing (`SetCredential=`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

AS_KEYS = {
    "admin-password": ("admin_password",),
    "prometheus-token": ("metrics", "prometheus_token"),
    "oauth2-client-secret": ("auth", "oauth2", "client_secret"),
}
"""Credentials that stand for a key of the configuration."""

SECRETS_KEY = "secrets-key"
"""The key of sealed secrets, as hex digits."""


class CredentialError(Exception):
    """A credential can't be read; the text says which and why."""


def credential(name: str) -> Path | None:
    """The file of a credential; None when it was not given, or is empty. Raises `CredentialError`."""
    folder = os.environ.get("CREDENTIALS_DIRECTORY", "")
    if not folder:
        return None
    path = Path(folder) / name
    return path if _text(path) else None


def as_settings() -> dict[str, Any]:
    """The credentials that stand for keys of the configuration, as it is nested. Raises `CredentialError`."""
    nested: dict[str, Any] = {}
    for name, keys in AS_KEYS.items():
        path = credential(name)
        if path is not None:
            group = nested
            for key in keys[:-1]:
                group = group.setdefault(key, {})
            group[keys[-1]] = _text(path)
    return nested


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise CredentialError(f"the credential {path.name} can't be read: {error}") from error
