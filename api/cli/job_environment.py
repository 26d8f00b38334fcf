"""The environment of a job that is to use a proxy: its address in the variables that programs read, and no key of ours.

Programs agree on no list of names. curl reads `http_proxy` in small letters alone, others prefer capitals, git and pip
read both; all take the URL with its scheme, so one value is for `http` and SOCKS proxies alike.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from api.cli.errors import CommandError, Status
from config.settings.env import ENV_PREFIX

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
NOT_THROUGH_PROXY = "localhost,127.0.0.1,::1"
"""Only what is the job's own machine: each other host here would be a way around the proxy."""


@dataclass(frozen=True, slots=True)
class JobProxy:
    """A proxy as the job reaches it: `scheme` as curl has it. Without `username` and `secret` it wants none."""

    name: str
    scheme: str
    host: str
    port: int
    username: str = ""
    secret: str = ""

    @property
    def authority(self) -> str:
        """Host and port as in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        """With the secret. SOCKS4 has no password: the secret takes the place of the user name."""
        if not self.secret:
            return f"{self.scheme}://{self.authority}"
        pair = (self.secret, "") if self.scheme.startswith("socks4") else (self.username, self.secret)
        return f"{self.scheme}://{':'.join(quote(each, safe='') for each in pair)}@{self.authority}"


def job_environment(caller: Mapping[str, str], proxy: JobProxy) -> dict[str, str]:
    """The caller's variables without settings and keys of the product and without other proxies, and with this one."""
    kept = {
        name: value
        for name, value in caller.items()
        if not name.startswith(ENV_PREFIX) and not name.lower().endswith(("_proxy", "_noproxy"))
    }
    named = {**dict.fromkeys(PROXY_VARIABLES, proxy.url), "NO_PROXY": NOT_THROUGH_PROXY}
    spelled = {spelling: value for name, value in named.items() for spelling in (name, name.lower())}
    return {**kept, **spelled, "NODE_USE_ENV_PROXY": "1"}


def trust_in(ca_file: Path | None) -> ssl.SSLContext:
    """What is trusted of an https proxy: the public authorities, and those of the file. Raises `CommandError`."""
    context = ssl.create_default_context()
    if ca_file is None:
        return context
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError as error:
        message = f"--proxy-ca: {ca_file} holds no certificate in PEM form"
        raise CommandError(message, status=Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"--proxy-ca: {ca_file}: {error.strerror or error}", status=Status.USAGE) from error
    return context
