"""Secrets are planted in every place that takes one, and then everything that is written is searched for them."""

from __future__ import annotations

import base64
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import requests

from tests.kit.fake_provider import CLIENT_ID, CLIENT_SECRET, REDIRECT, FakeProvider
from tests.kit.product import PASSWORD, Product

pytestmark = pytest.mark.product


class Planted:
    """A product, the secrets that were given to it or came from it, and what it answered."""

    def __init__(self, product: Product, provider: FakeProvider, configured: dict[str, str]) -> None:
        self.product = product
        self.provider = provider
        self.secrets = {"the administrator's password": PASSWORD, **configured}
        self.answers: list[str] = []
        self.paths: list[str] = []
        """Secrets in URLs. They are stored in clear, and shown to those alone who can change them."""

    def new(self, what: str) -> str:
        """A secret that can't be there by chance."""
        self.secrets[what] = f"planted-{secrets.token_hex(12)}"
        return self.secrets[what]

    def call(self, method: str, path: str, body: Any = None, shows: bool = False, **headers: str) -> Any:
        """One call. `shows`: the response may hold a secret, for it is the one that shows it."""
        response = self.product.api(method, path, body, headers=headers)
        if not shows:
            self.answers.append(response.text)
        return response.json().get("data")

    def plant(self) -> None:
        """Everything that takes or makes a secret, well and badly."""
        user = self.call("POST", "/users", {"username": "eve", "password": self.new("a user's password")})["user"]
        self.call("PATCH", f"/users/{user['id']}", {"password": self.new("a user's next password")})
        self.call("POST", "/users", {"username": "eve", "password": self.new("a password of a refused user")})
        self.call("POST", "/users", {"username": ["x"], "password": self.new("a password in a bad body")})
        signed_in = self.call("POST", "/auth/login", {"username": "admin", "password": PASSWORD}, shows=True)
        self.secrets["an access token"] = signed_in["access_token"]
        self.secrets["a refresh token"] = signed_in["refresh_token"]
        self.secrets["a key"] = self.call("POST", "/api-keys", {"name": "k"}, shows=True)["key"]
        self._wrong_credentials()
        self._proxy()
        self._webhook()
        self._sign_in_again()
        self._repeated()

    def _wrong_credentials(self) -> None:
        self.call("POST", "/auth/login", {"username": "admin", "password": self.new("a wrong password")})
        self.call("POST", "/auth/refresh", {"refresh_token": self.new("a wrong refresh token")})
        base = f"{self.product.base_url}/api/v1/auth/test"
        for headers in (
            {"X-API-Key": self.new("a wrong key")},
            {"X-API-Key": self.secrets["a key"]},
            {"Authorization": f"Bearer {self.new('a wrong token')}"},
            {"Authorization": f"Bearer {self.secrets['an access token']}"},
            {"Authorization": _basic(self.new("a wrong Basic password"))},
            {"Authorization": _basic(PASSWORD)},
        ):
            self.answers.append(requests.get(base, headers=headers, timeout=30).text)
        self.answers.append(requests.get(base, params={"api_key": self.new("a key in a query")}, timeout=30).text)

    def _proxy(self) -> None:
        own, account, parent = (self.new(f"the password of {what}") for what in ("a proxy", "an account", "a parent"))
        fields = {
            "auth": {"enabled": True, "username": "alice", "password": own},
            "accounts": [{"username": "bob", "password": account}],
            "upstreams": [
                {"protocol": "http", "host": "127.0.0.1", "port": 1, "auth": {"username": "u", "password": parent}}
            ],
        }
        proxy = self.product.proxy(**fields)
        path = f"/proxies/{proxy['id']}"
        self.call("GET", path)
        self.call("GET", "/proxies")
        self.call("PATCH", path, {"auth": {"password": self.new("the next password of a proxy")}})
        self.call(
            "PATCH", path, {"upstreams": [{"protocol": "http", "host": 1, "auth": {"password": self.new("a bad one")}}]}
        )
        self.call("POST", f"{path}/test", {"timeout": 2})
        for password in (own, self.new("a wrong proxy password")):
            through = {"http": f"http://alice:{password}@127.0.0.1:{proxy['port']}"}
            self.answers.append(requests.get("http://127.0.0.1:1/", proxies=through, timeout=30).text)
        self.call("GET", "/logs")
        self.call("GET", "/audit")
        self.call("GET", f"{path}/accounts")

    def _webhook(self) -> None:
        """It is delivered to, well and badly, so that the delivery log is full."""
        for target in (self.provider.url, "http://127.0.0.1:1/"):
            headers = {"X-Token": self.new(f"a webhook's header for {target}")}
            self.paths.append(f"planted-{secrets.token_hex(12)}")
            body = {"name": "w", "url": f"{target}/token?key={self.paths[-1]}", "events": ["*"], "headers": headers}
            made = self.call("POST", "/webhooks", body, shows=True)["webhook"]
            path = f"/webhooks/{made['id']}"
            self.secrets[f"the secret of the webhook for {target}"] = made["secret"]
            rotated = self.call("POST", f"{path}/rotate-secret", shows=True)["webhook"]
            self.secrets[f"the next secret of the webhook for {target}"] = rotated["secret"]
            self.call("POST", f"{path}/test")
            self.call("PATCH", path, {"headers": {"X-Token": self.new(f"the next header for {target}")}}, shows=True)
            self.call("PATCH", path, {"headers": {"host": self.new("a header that is refused")}})
            as_reader = {"Authorization": f"Bearer {self._reader()}"}
            for each in ("/webhooks", path, f"{path}/deliveries"):
                self.answers.append(requests.get(f"{self.product.base_url}/api/v1{each}", headers=as_reader).text)

    def _reader(self) -> str:
        """A token of a user who may see webhooks and not change them."""
        name = f"reader-{secrets.token_hex(4)}"
        body = {"username": name, "password": self.new(f"the password of {name}"), "permissions": ["settings.read"]}
        self.call("POST", "/users", body)
        login = {"username": name, "password": body["password"]}
        token = str(self.call("POST", "/auth/login", login, shows=True)["access_token"])
        self.secrets[f"the token of {name}"] = token
        return token

    def _sign_in_again(self) -> None:
        """Well, then with what the provider doesn't take, then with a provider that is broken."""
        begin = {"Accept": "application/json"}
        for broken in (False, True):
            begun = self.call("GET", "/auth/oauth2/authorize", **begin)
            back = self.provider.sign_in(begun["authorization_url"])
            self.secrets[f"a code of the provider, broken: {broken}"] = back["code"]
            if broken:
                self.provider.responses["/token"] = (200, {}, b'{"access_token": "' + b"x" * 100)
            data = self.call("POST", "/auth/oauth2/callback", back, shows=True)
            if data:
                self.secrets["a token after a sign-in elsewhere"] = data["access_token"]
        self.call("POST", "/auth/oauth2/callback", {"code": self.new("a wrong code"), "state": "wrong"})
        metrics = f"{self.product.base_url}/metrics"
        for token in (self.secrets["the token of Prometheus"], self.new("a wrong token of Prometheus")):
            self.answers.append(requests.get(metrics, headers={"Authorization": f"Bearer {token}"}, timeout=30).text)

    def _repeated(self) -> None:
        """A key that is made is in the answer that is kept for who sends the request again."""
        for _ in range(2):
            response = self.call("POST", "/api-keys", {"name": "again"}, shows=True, **{"Idempotency-Key": "once"})
            self.secrets["a key that was shown twice"] = response["key"]


def _basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"admin:{password}".encode()).decode()


@pytest.fixture(scope="module")
def planted() -> Iterator[Planted]:
    provider = FakeProvider()
    configured = {"the client secret": CLIENT_SECRET, "the token of Prometheus": f"planted-{secrets.token_hex(12)}"}
    settings = {
        "LOGGING__LEVEL": "debug",
        "SECURITY__REQUEST_LOGGING": "true",
        "WEBHOOKS__ALLOW_PRIVATE": "true",
        "METRICS__PROMETHEUS_TOKEN": configured["the token of Prometheus"],
        "AUTH__OAUTH2__ENABLED": "true",
        "AUTH__OAUTH2__PROVIDER": "custom",
        "AUTH__OAUTH2__DISCOVERY_URL": provider.discovery_url,
        "AUTH__OAUTH2__CLIENT_ID": CLIENT_ID,
        "AUTH__OAUTH2__CLIENT_SECRET": CLIENT_SECRET,
        "AUTH__OAUTH2__REDIRECT_URI": REDIRECT,
    }
    with Product({f"PROXYFLEET_{name}": value for name, value in settings.items()}) as product:
        made = Planted(product, provider, configured)
        made.plant()
        made.secrets["the token of the tests"] = product.token
        yield made
    provider.close()


def written_below(folder: Path) -> dict[str, bytes]:
    """The contents of all files. One that is gone meanwhile was renamed over another, or was of no use."""
    found = {}
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            if path.is_file():
                found[str(path)] = written_in(path)
    return found


def written_in(path: Path) -> bytes:
    """What a file has, without its holes: tables of live state have room for millions of accounts."""
    parts = []
    with path.open("rb") as file:
        end = 0
        while True:
            try:
                begin = os.lseek(file.fileno(), end, os.SEEK_DATA)
            except OSError as error:  # nothing but a hole follows
                if error.errno != errno.ENXIO:
                    raise
                return b"".join(parts)
            end = os.lseek(file.fileno(), begin, os.SEEK_HOLE)
            parts.append(os.pread(file.fileno(), end - begin, begin))


def test_no_secret_is_written_shown_or_left_in_a_command_line(planted: Planted) -> None:
    product = planted.product
    written = written_below(product.directory)
    written["the answers"] = "\n".join(planted.answers).encode()
    for process in (psutil.Process(product.pid), *product.processes()):
        with suppress(psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):  # one of a few moments has ended
            written[f"the command line of {process.pid}"] = "\0".join(process.cmdline()).encode()
            written[f"the environment of {process.pid}"] = Path(f"/proc/{process.pid}/environ").read_bytes()
    found = [
        f"{what} in {place}"
        for place, content in written.items()
        for what, secret in planted.secrets.items()
        for form in (secret.encode(), _basic(secret).removeprefix("Basic ").encode())
        if form in content
    ]
    assert found == []
    assert sum(b"eve" in content for content in written.values()) >= 3  # what is no secret is found by the same search


def test_paths_of_urls_are_in_no_log_and_shown_to_no_reader(planted: Planted) -> None:
    planted.call("GET", "/audit")
    assert len(planted.paths) == 2
    shown = "\n".join(planted.answers) + planted.product.log
    assert "/webhooks" in shown
    assert [path for path in planted.paths if path in shown] == []


def test_files_are_for_their_owner_alone(planted: Planted) -> None:
    for folder in (planted.product.data_dir, planted.product.run_dir):
        for path in [folder, *folder.rglob("*")]:
            mode = stat.S_IMODE(path.lstat().st_mode)
            assert mode & 0o077 == 0 or stat.S_ISSOCK(path.lstat().st_mode), f"{path} is {mode:o}"
