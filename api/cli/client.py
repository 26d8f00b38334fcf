"""A client of the management API: a method and a path, data in and data out; every failure is a `CommandError`.

Credentials are an API key, or the tokens of a login, which are renewed when they expire. Proxies of the environment are
used, but never on the way to this machine: a proxy of the product would then carry the calls that manage it. No
`.netrc` is read: requests would send its credentials in place of ours.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from api.cli.errors import CommandError, Credential, Status, cause_of, data_of, error_of, unreachable
from api.cli.tokens import CallerCredentials, SignedInTokens
from config import VERSION

if TYPE_CHECKING:  # both are loaded by the first call
    from ssl import SSLContext

    import requests

DEFAULT_URL = "http://127.0.0.1:8080"
PAGE = 100
BASE = "/api/v1"


@dataclass(frozen=True, slots=True)
class Window:
    """One window of the rate limit: `remaining` of `limit` requests until `reset` (of the monotonic clock)."""

    limit: int
    remaining: int
    reset: float

    def pause(self, wanted: float) -> float:
        """Seconds until the next poll: `wanted`, or more, so that the window lasts.

        A share of the window (`RESERVE`) is left to other commands of the same user.
        """
        left = max(0.0, self.reset - time.monotonic())
        spare = self.remaining - int(self.limit * RESERVE)
        return max(wanted, left / max(1, spare))


RESERVE = 0.25
"""Share of each window that polling leaves unused."""


def check_url(text: str) -> str:
    """The base address of an API without a trailing slash. Raises `CommandError`."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # unmatched brackets, or an invalid port
        good = False
    if not good or parts.query or parts.fragment:
        example = f"http://{text}" if text and "://" not in text else DEFAULT_URL
        raise CommandError(f"--url: {text!r} is not the address of an API", f"Such as {example}", status=Status.USAGE)
    if parts.username is not None or parts.password is not None:
        raise CommandError("--url: must not hold a password", "Sign in with proxyfleet login", status=Status.USAGE)
    return text.rstrip("/").removesuffix(BASE)


def _password_hint(username: str) -> str:
    """How a user gets a new password."""
    first = "The first password is in initial-admin-password in the data directory until it is changed. "
    return (
        f"{first if username == 'admin' else ''}An administrator sets another: proxyfleet users update {username} "
        f"--password; without one, on the product's machine, also while it runs: proxyfleet reset-password {username} "
        "--data-dir DIR"
    )


def is_here(url: str) -> bool:
    """True if the host of `url` is a loopback address or name."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class ApiClient:
    """Calls the API at `url`. `key` wins over the tokens of a login. `timeout` is in seconds."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        credentials: CallerCredentials | None = None,
        timeout: float = 30.0,
        ca_file: str | None = None,
    ) -> None:
        self.url = check_url(url)
        self.credentials = credentials or CallerCredentials()
        self.rate_limits: tuple[Window, ...] = ()
        """The windows of the rate limit in the last response."""
        self.etag: str | None = None
        """The `ETag` of the last response."""
        self.missing_nodes = ""
        """The nodes of which the last `stream` has nothing."""
        self.waits = True
        """Whether a call that got 429 waits and repeats, as long as `timeout` allows."""
        self.on_wait: Callable[[int], None] = lambda _seconds: None
        """Called with the seconds that a call is about to wait."""
        self._key = key
        self._timeout = timeout
        self._ca_file = ca_file
        self._session: requests.Session | None = None

    def pause(self, wanted: float) -> float:
        """Seconds until the next poll: `wanted`, or more, so that the rate limit lasts."""
        return max((window.pause(wanted) for window in self.rate_limits), default=wanted)

    @property
    def signed_in(self) -> SignedInTokens | None:
        """The login at this API; None with a key."""
        return None if self._key else self.credentials.tokens(self.url)

    @property
    def _ca_file_of_login(self) -> str | None:
        """The certificate authority of the last login at this address."""
        tokens = self.credentials.tokens(self.url) if self.url.startswith("https:") else None
        return None if tokens is None else tokens.ca_file

    @property
    def credential(self) -> Credential:
        """The kind of credential that requests have, if there is one."""
        return "key" if self._key else "login"

    def get(self, path: str, **query: Any) -> Any:
        """`data` of a GET below `/api/v1`. Parameters that are None are left out."""
        return self.call("GET", path, query=query)

    def post(self, path: str, body: Any = None) -> Any:
        """`data` of a POST."""
        return self.call("POST", path, body=body)

    def patch(self, path: str, body: Any) -> Any:
        """`data` of a PATCH."""
        return self.call("PATCH", path, body=body)

    def delete(self, path: str, **query: Any) -> Any:
        """`data` of a DELETE."""
        return self.call("DELETE", path, query=query)

    def call(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        anonymous: bool = False,
        timeout: float | None = None,
        headers: Mapping[str, str | bytes] | None = None,
        content: bytes | None = None,
    ) -> Any:
        """`data` of one call. `path` is below `/api/v1`, its parts quoted (`quoted`). Raises `CommandError`.

        `content` is a body that is not JSON; `headers` say what it is.
        """
        credentials = {} if anonymous else self._authorization()

        def send(authorization: Mapping[str, str]) -> requests.Response:
            return self._send(
                method, path, query, timeout, json=body, data=content, headers={**(headers or {}), **authorization}
            )

        response = send(credentials)
        if response.status_code == 401 and "Authorization" in credentials and _expired(response):
            response = send(self._renewed())
        self.etag = response.headers.get("ETag")
        return data_of(response, self.url, self.credential if credentials else None)

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The chunks of a body that is not an envelope. Raises `CommandError`, also if the body is incomplete."""
        import requests

        response = self._send("GET", path, query, headers=self._authorization(), stream=True)
        if response.status_code != 200:
            data_of(response, self.url, self.credential)
        self.missing_nodes = response.headers.get("X-Missing-Nodes", "")
        try:
            yield from response.iter_content(65536)
        except requests.RequestException as error:
            raise CommandError(f"The response ended early: {cause_of(error)}", status=Status.UNREACHABLE) from error
        finally:
            response.close()

    def pages(self, path: str, name: str, size: str = "limit", **query: Any) -> Iterator[dict[str, Any]]:
        """All entries of a list that is read by a cursor; `size` is the parameter with the length of a page."""
        cursor: str | None = None
        while True:
            data = self.get(path, **{size: PAGE, **query}, cursor=cursor)
            yield from data[name]
            cursor = data["next_cursor"]
            if cursor is None:
                return

    def sign_in(self, username: str, password: str) -> dict[str, Any]:
        """Sign in and keep the tokens. Returns the user."""
        body = {"username": username, "password": password, "session": "interactive"}
        try:
            data: dict[str, Any] = self.call("POST", "/auth/login", body=body, anonymous=True)
        except CommandError as error:
            if error.status is Status.NOT_AUTHORISED:
                error.hint = _password_hint(username)
            raise
        with self.credentials.locked():
            ca_file = str(Path(self._ca_file).absolute()) if self._ca_file else self._ca_file_of_login
            self.credentials.put(self.url, SignedInTokens.from_response(data, username, ca_file))
        user: dict[str, Any] = data["user"]
        return user

    def sign_out(self) -> bool:
        """End the login at the API and remove its tokens. Returns False if there was none."""
        if self.credentials.tokens(self.url) is None:
            return False
        try:
            self.call("POST", "/auth/logout")
        except CommandError as error:
            if error.status is not Status.NOT_AUTHORISED:
                raise  # the API has ended this sign-in already
        with self.credentials.locked():
            self.credentials.forget(self.url)
        return True

    def _authorization(self) -> dict[str, str]:
        if self._key:
            return {"X-API-Key": self._key}
        tokens = self.credentials.tokens(self.url)
        if tokens is None:
            return {}
        return self._renewed() if tokens.expired else {"Authorization": f"Bearer {tokens.access_token}"}

    def _renewed(self) -> dict[str, str]:
        """The header with a new access token, which another process may have fetched while this one waited for the
        lock."""
        before = self.credentials.tokens(self.url)
        with self.credentials.locked():
            tokens = self.credentials.tokens(self.url)
            if tokens is None:
                return {}
            if tokens == before or tokens.expired:
                response = self._send("POST", "/auth/refresh", json={"refresh_token": tokens.refresh_token})
                if response.status_code == 401:
                    self.credentials.forget(self.url)
                    raise CommandError("The sign-in is over", "proxyfleet login", Status.NOT_AUTHORISED)
                tokens = tokens.renewed(data_of(response, self.url, self.credential))
                self.credentials.put(self.url, tokens)
        return {"Authorization": f"Bearer {tokens.access_token}"}

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        **options: Any,
    ) -> requests.Response:
        """The response; a request that got 429 is repeated after `Retry-After`, if the time-out leaves time for that.

        `options` are those of `requests`.
        """
        options["params"] = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        options["timeout"] = timeout or self._timeout
        until = time.monotonic() + options["timeout"]
        while True:
            response = self._send_once(method, f"{self.url}{BASE}{path}", options)
            pause = _retry_after(response)
            if pause is None or not self.waits or time.monotonic() + pause > until:
                return response
            response.close()
            self.on_wait(pause)
            time.sleep(pause)

    def _send_once(self, method: str, url: str, options: Mapping[str, Any]) -> requests.Response:
        import requests

        try:
            response = self._open().request(method, url, allow_redirects=False, **options)
        except requests.RequestException as error:
            raise self._with_hint(unreachable(self.url, error)) from error
        self.rate_limits = _rate_limits(response.headers) or self.rate_limits
        return response

    def _with_hint(self, error: CommandError) -> CommandError:
        """A key is never sent to the address of a login, so that address must be named."""
        last = self.credentials.last_url if self._key and self.url == DEFAULT_URL else None
        if last not in (None, self.url):
            error.hint = f"With an API key the address of the last login isn't used: --url {last} or PROXYFLEET_URL"
        return error

    def _open(self) -> requests.Session:
        import requests

        if self._session is None:
            self._session = requests.Session()
            self._session.trust_env = False
            if not is_here(self.url):
                self._session.proxies.update(requests.utils.get_environ_proxies(self.url))
            self._session.headers.update({"User-Agent": f"proxyfleet/{VERSION}", "Accept-Encoding": "identity"})
            ca_file = self._ca_file or self._ca_file_of_login
            if ca_file:
                trust_in("--ca-file", ca_file)  # requests would end with a traceback, or blame the server
                self._session.verify = ca_file
        return self._session


def trust_in(option: str, ca_file: str | Path | None) -> SSLContext:
    """What is trusted: the public authorities, and those of the file, which `option` names. Raises `CommandError`."""
    from ssl import SSLError, create_default_context

    context = create_default_context()
    try:
        if ca_file is not None:
            context.load_verify_locations(ca_file)
    except SSLError as error:
        raise CommandError(f"{option}: {ca_file} holds no certificate in PEM form", status=Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"{option}: {ca_file}: {error.strerror or error}", status=Status.USAGE) from error
    return context


def quoted(part: str) -> str:
    """A segment of a path; names may hold a slash."""
    return quote(part, safe="")


def _text(value: Any) -> str | list[str]:
    """A parameter as `requests` takes it; a list is given several times."""
    if isinstance(value, list):
        return [str(each) for each in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


_POLICY = re.compile(r'"(\w+)";q=(\d+);w=\d+', re.ASCII)
_STATE = re.compile(r'"(\w+)";r=(\d+);t=(\d+)', re.ASCII)


def _rate_limits(headers: Mapping[str, str]) -> tuple[Window, ...]:
    """The windows in `RateLimit-Policy` and `RateLimit`."""
    limits = dict(_POLICY.findall(headers.get("RateLimit-Policy", "")))
    now = time.monotonic()
    return tuple(
        Window(int(limits[name]), int(remaining), now + int(seconds))
        for name, remaining, seconds in _STATE.findall(headers.get("RateLimit", ""))
        if name in limits
    )


def _retry_after(response: requests.Response) -> int | None:
    """Seconds until the request may be repeated; None unless the status is 429."""
    after = response.headers.get("Retry-After", "")
    return int(after) if response.status_code == 429 and after.isdecimal() else None


def _expired(response: requests.Response) -> bool:
    """Not only TOKEN_EXPIRED: with a wrong clock here, the API may reject a token that seems to be valid."""
    return error_of(response).get("code") in ("TOKEN_EXPIRED", "UNAUTHORIZED")
