"""The tokens of a login, and the file of the user that they are in."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from api.cli.errors import CommandError
from config.files.durable import replace_file_of_user

RENEW_BEFORE = 30.0
"""Seconds before its end from which an access token counts as expired."""


@dataclass(frozen=True, slots=True)
class SignedInTokens:
    """A sign-in; `expires_at` is the end of the access token in Unix seconds, `ca_file` the authority to trust."""

    access_token: str
    refresh_token: str
    expires_at: float
    username: str
    ca_file: str | None = None

    @classmethod
    def from_response(cls, data: dict[str, Any], username: str, ca_file: str | None = None) -> SignedInTokens:
        """From the response to a login or a refresh."""
        end = time.time() + float(data["expires_in"])
        return cls(data["access_token"], data["refresh_token"], end, username, ca_file)

    @property
    def expired(self) -> bool:
        """True if the access token has ended or is about to."""
        return time.time() >= self.expires_at - RENEW_BEFORE

    def renewed(self, data: dict[str, Any]) -> SignedInTokens:
        """From the response to a refresh; user and authority stay."""
        return SignedInTokens.from_response(data, self.username, self.ca_file)


def directory() -> Path:
    """The directory of the user's configuration."""
    base = os.environ.get("XDG_CONFIG_HOME", "")
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / "proxyfleet"


class CallerCredentials:
    """The file of tokens, one sign-in for each address. Methods raise `CommandError` if it can't be read or written.

    It is `$XDG_CONFIG_HOME/proxyfleet/credentials.json`, mode 0600 in a directory of mode 0700, replaced as a whole and
    never altered in place. A refresh token is valid once, and its second use ends the sign-in; so a process that
    refreshes holds a lock, and first reads again what another process may have written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or directory()
        self.file = self._folder / "credentials.json"

    def tokens(self, url: str) -> SignedInTokens | None:
        """The sign-in at `url`; None if there is none."""
        found = self._read()["servers"].get(url)
        try:
            return None if found is None else SignedInTokens(**found)
        except TypeError:
            return None  # of another version; a new login replaces it

    @property
    def last_url(self) -> str | None:
        """The address of the last login."""
        url = self._read().get("last_url")
        return url if isinstance(url, str) else None

    def put(self, url: str, tokens: SignedInTokens) -> None:
        """Write a sign-in."""
        whole = self._read()
        whole["servers"][url] = asdict(tokens)
        self._write({**whole, "last_url": url})

    def forget(self, url: str) -> None:
        """Remove a sign-in, if there is one."""
        whole = self._read()
        if whole["servers"].pop(url, None) is not None:
            self._write(whole)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that every writer takes."""
        self._make_folder()
        with (self._folder / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _read(self) -> dict[str, Any]:
        try:
            whole = json.loads(self.file.read_bytes())
        except FileNotFoundError:
            whole = {}
        except (OSError, ValueError) as error:
            raise CommandError(
                f"{self.file}: {error}", "Remove the file and sign in again: proxyfleet login"
            ) from error
        servers = whole.get("servers") if isinstance(whole, dict) else None
        last = whole.get("last_url") if isinstance(whole, dict) else None
        return {"version": 1, "last_url": last, "servers": servers if isinstance(servers, dict) else {}}

    def _write(self, whole: dict[str, Any]) -> None:
        self._make_folder()
        try:
            replace_file_of_user(self.file, json.dumps(whole, indent=2).encode())
        except OSError as error:
            raise CommandError(f"{self.file}: {error.strerror or error}") from error

    def _make_folder(self) -> None:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._folder.chmod(0o700)
        except OSError as error:
            raise CommandError(
                f"{self._folder}: {error.strerror or error}", "XDG_CONFIG_HOME chooses another"
            ) from error
