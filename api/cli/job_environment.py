"""The environment of a job that is to use a proxy: its address in the variables that programs read, and no key of ours.

Programs agree on no list of names. curl reads `http_proxy` in small letters alone, others prefer capitals, git and pip
read both; all take the URL with its scheme, so one value is for `http`, `https` and SOCKS proxies alike.
"""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from api.cli.errors import CommandError, Status
from config.settings.env import ENV_PREFIX

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
NOT_THROUGH_PROXY = "localhost,127.0.0.1,::1"
"""Only what is the job's own machine: each other host here would be a way around the proxy."""
_BUNDLES = ("SSL_CERT_FILE", "CURL_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "PIP_CERT", "GIT_SSL_CAINFO")
"""Files in place of the public authorities: of OpenSSL and Go, curl, requests, pip and git."""
_PROXY_BUNDLES = ("GIT_PROXY_SSL_CAINFO",)
_ADDED = "NODE_EXTRA_CA_CERTS"
"""A file beside the public authorities, of Node."""


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


def job_environment(
    caller: Mapping[str, str], proxy: JobProxy, bundle: Path | None, ca_file: Path | None
) -> dict[str, str]:
    """The caller's variables without settings and keys of the product and without other proxies, and with this one.

    `bundle` has the public authorities and that of `ca_file`, which has signed the certificate of the proxy.
    """
    kept = {
        name: value
        for name, value in caller.items()
        if not name.startswith(ENV_PREFIX) and not name.lower().endswith(("_proxy", "_noproxy"))
    }
    named = {**dict.fromkeys(PROXY_VARIABLES, proxy.url), "NO_PROXY": NOT_THROUGH_PROXY}
    trust = {} if bundle is None else dict.fromkeys((*_BUNDLES, *_PROXY_BUNDLES), str(bundle))
    if ca_file is not None:
        trust[_ADDED] = str(ca_file.absolute())
    spelled = {spelling: value for name, value in named.items() for spelling in (name, name.lower())}
    return {**kept, **spelled, **trust, "NODE_USE_ENV_PROXY": "1"}


@contextmanager
def bundle_with(ca_file: Path) -> Iterator[Path]:
    """A file with the authorities that this machine trusts and those of `ca_file`. Raises `CommandError`."""
    try:
        own = ca_file.read_bytes()
        ssl.create_default_context(cadata=own.decode("ascii"))
    except OSError as error:
        raise CommandError(f"--proxy-ca: {ca_file}: {error.strerror or error}", status=Status.USAGE) from error
    except (ssl.SSLError, ValueError) as error:
        message = f"--proxy-ca: {ca_file} holds no certificate in PEM form"
        raise CommandError(message, status=Status.USAGE) from error
    with tempfile.NamedTemporaryFile(prefix="proxyfleet-ca-", suffix=".pem") as bundle:
        bundle.write(_trusted_here() + b"\n" + own)
        bundle.flush()
        yield Path(bundle.name)


def _trusted_here() -> bytes:
    """The public authorities in PEM form; empty where OpenSSL has no file of them."""
    found = ssl.get_default_verify_paths().cafile
    if not found:
        return b""
    try:
        return Path(found).read_bytes()
    except OSError as error:
        raise CommandError(f"{found}: {error.strerror or error}") from error
