"""The management API as commands see it: a method, a path, data in and data out; everything else is a `CommandError`.

Credentials are an API key, or the tokens of a login, which are renewed when they are over. The environment's proxies
are heeded, but never on the way to this machine itself: whoever uses a proxy of ours for all else would manage it
through itself. No `.netrc` is read: requests would send what is in it in place of our own credentials.
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

from api.cli.credentials import Credentials, Tokens
from api.cli.errors import CommandError, Status
from api.cli.responses import Credential, cause_of, data_of, error_of, unreachable
from config import VERSION

if TYPE_CHECKING:  # requests is loaded by the first call
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
        """Seconds until the next request of somebody who watches: `wanted`, or what makes the window last.

        A share of it (`RESERVE`) is left to other commands of the same user.
        """
        left = max(0.0, self.reset - time.monotonic())
        spare = self.remaining - int(self.limit * RESERVE)
        return max(wanted, left / max(1, spare))


@dataclass(frozen=True, slots=True)
class Allowance:
    """What the last response said of the rate limits."""

    windows: tuple[Window, ...]

    def pause(self, wanted: float) -> float:
        """As that of the window that asks for the longest."""
        return max((window.pause(wanted) for window in self.windows), default=wanted)


RESERVE = 0.25
"""Share of each window that is not used up by watching."""


def check_url(text: str) -> str:
    """The base address of an API without a trailing slash. Raises `CommandError`."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that don't match, or a port that is none
        good = False
    if not good or parts.query or parts.fragment:
        meant = f"http://{text}" if text and "://" not in text else DEFAULT_URL
        raise CommandError(f"--url: {text!r} is not the address of an API", f"Such as {meant}", status=Status.USAGE)
    if parts.username is not None or parts.password is not None:
        raise CommandError("--url: must not hold a password", "Sign in by proxyfleet login", status=Status.USAGE)
    return text.rstrip("/").removesuffix(BASE)


def _forgotten(username: str) -> str:
    """What somebody can do who doesn't know the password."""
    first = "The first password is in initial-admin-password in the data directory until it is changed. "
    return (
        f"{first if username == 'admin' else ''}An administrator gives another: proxyfleet users update {username} "
        f"--password; without one, on the product's machine, also while it runs: proxyfleet reset-password {username} "
        "--data-dir DIR"
    )


def is_here(url: str) -> bool:
    """Does `url` name this machine by loopback?"""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


class Client:
    """Calls to the API at `url`. `key` wins over the tokens of a login. `timeout` is in seconds."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        credentials: Credentials | None = None,
        timeout: float = 30.0,
        ca_file: str | None = None,
    ) -> None:
        self.url = check_url(url)
        self.credentials = credentials or Credentials()
        self.allowance: Allowance | None = None
        self.etag: str | None = None
        """The `ETag` of the last answer."""
        self.waits = True
        """Whether a call waits, as long as `timeout` allows, when there were too many requests."""
        self.on_wait: Callable[[int], None] = _silently
        """Called with the seconds that a call is about to wait."""
        self._key = key
        self._timeout = timeout
        self._ca_file = ca_file
        self._session: requests.Session | None = None

    @property
    def signed_in(self) -> Tokens | None:
        """The login at this API; None with a key."""
        return None if self._key else self.credentials.tokens(self.url)

    @property
    def _ca_file_of_login(self) -> str | None:
        """The certificate authority that the last login at this address named."""
        tokens = self.credentials.tokens(self.url) if self.url.startswith("https:") else None
        return None if tokens is None else tokens.ca_file

    @property
    def credential(self) -> Credential:
        """What requests are authenticated by, if they are."""
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
    ) -> Any:
        """`data` of one call. `path` is below `/api/v1`, its parts quoted (`quoted`). Raises `CommandError`."""
        credentials = {} if anonymous else self._authorization()
        more = dict(headers or {})
        answer = self._send(method, path, query, body, {**more, **credentials}, timeout)
        if answer.status_code == 401 and not anonymous and "Authorization" in credentials and _expired(answer):
            answer = self._send(method, path, query, body, {**more, **self._renewed()}, timeout)
        self.etag = answer.headers.get("ETag")
        return data_of(answer, self.url, self.credential if credentials else None)

    def stream(self, path: str, query: Mapping[str, Any]) -> Iterator[bytes]:
        """The body of a GET that is no envelope, piece by piece. Raises `CommandError`, also when it breaks off."""
        import requests

        answer = self._send("GET", path, query, None, self._authorization(), None, stream=True)
        if answer.status_code != 200:
            data_of(answer, self.url, self.credential)
        try:
            yield from answer.iter_content(65536)
        except requests.RequestException as error:
            raise CommandError(f"The answer broke off: {cause_of(error)}", status=Status.UNREACHABLE) from error
        finally:
            answer.close()

    def pages(self, path: str, name: str, **query: Any) -> Iterator[dict[str, Any]]:
        """All entries of a list that comes in pages."""
        page = 1
        while True:
            data = self.get(path, **query, page=page, per_page=PAGE)
            yield from data[name]
            if not data["pagination"]["has_next"]:
                return
            page += 1

    def sign_in(self, username: str, password: str) -> dict[str, Any]:
        """Sign in and keep the tokens; the user."""
        body = {"username": username, "password": password, "session": "interactive"}
        try:
            data: dict[str, Any] = self.call("POST", "/auth/login", body=body, anonymous=True)
        except CommandError as trouble:
            if trouble.status is Status.NOT_AUTHORISED:
                trouble.hint = _forgotten(username)
            raise
        with self.credentials.locked():
            ca_file = str(Path(self._ca_file).absolute()) if self._ca_file else self._ca_file_of_login
            self.credentials.put(self.url, Tokens.of_answer(data, username, ca_file))
        user: dict[str, Any] = data["user"]
        return user

    def moved(self, url: str) -> None:
        """The same API is at `url` from now on, and so is the sign-in."""
        with self.credentials.locked():
            tokens = self.credentials.tokens(self.url)
            if tokens is not None:
                self.credentials.put(url, tokens)
                self.credentials.forget(self.url)
        self.url = url

    def sign_out(self) -> bool:
        """End the login, here and there; False when there was none."""
        if self.credentials.tokens(self.url) is None:
            return False
        try:
            self.call("POST", "/auth/logout")
        except CommandError as trouble:
            if trouble.status is not Status.NOT_AUTHORISED:
                raise  # of one that is dead already nothing is left to end
        with self.credentials.locked():
            self.credentials.forget(self.url)
        return True

    def _authorization(self) -> dict[str, str]:
        if self._key:
            return {"X-API-Key": self._key}
        tokens = self.credentials.tokens(self.url)
        if tokens is None:
            return {}
        return self._renewed() if tokens.over else {"Authorization": f"Bearer {tokens.access_token}"}

    def _renewed(self) -> dict[str, str]:
        """With a new access token. Another process may have got it while we waited for the lock."""
        before = self.credentials.tokens(self.url)
        with self.credentials.locked():
            tokens = self.credentials.tokens(self.url)
            if tokens is None:
                return {}
            if tokens == before or tokens.over:
                body = {"refresh_token": tokens.refresh_token}
                answer = self._send("POST", "/auth/refresh", None, body, {}, None)
                if answer.status_code == 401:
                    self.credentials.forget(self.url)
                    raise CommandError("The sign-in is over", "proxyfleet login", Status.NOT_AUTHORISED)
                tokens = tokens.renewed(data_of(answer, self.url, self.credential))
                self.credentials.put(self.url, tokens)
        return {"Authorization": f"Bearer {tokens.access_token}"}

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str | bytes],
        timeout: float | None,
        stream: bool = False,
    ) -> requests.Response:
        """The response; after `Retry-After` if there were too many requests and the time-out leaves time for that."""
        until = time.monotonic() + (timeout or self._timeout)
        while True:
            answer = self._send_once(method, path, query, body, headers, timeout, stream)
            pause = _retry_after(answer)
            if pause is None or not self.waits or time.monotonic() + pause > until:
                return answer
            answer.close()
            self.on_wait(pause)
            time.sleep(pause)

    def _send_once(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any] | None,
        body: Any,
        headers: Mapping[str, str | bytes],
        timeout: float | None,
        stream: bool,
    ) -> requests.Response:
        import requests

        given = {name: _text(value) for name, value in (query or {}).items() if value is not None}
        try:
            answer = self._open().request(
                method,
                f"{self.url}{BASE}{path}",
                params=given,
                json=body,
                headers=headers,
                timeout=timeout or self._timeout,
                allow_redirects=False,
                stream=stream,
            )
        except requests.RequestException as error:
            raise self._explained(unreachable(self.url, error)) from error
        self.allowance = _allowance(answer.headers) or self.allowance
        return answer

    def _explained(self, trouble: CommandError) -> CommandError:
        """A key is never sent to where only a login was, so the address of the last login doesn't count with one."""
        last = self.credentials.last_url if self._key and self.url == DEFAULT_URL else None
        if last not in (None, self.url):
            trouble.hint = f"With an API key the address of the last login isn't used: --url {last} or PROXYFLEET_URL"
        return trouble

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
                self._session.verify = _checked(ca_file)
        return self._session


def _checked(ca_file: str) -> str:
    """A file that certificates can be read from; requests would end with a traceback, or blame the server."""
    from ssl import SSLError, create_default_context

    try:
        create_default_context(cafile=ca_file)
    except SSLError as error:
        raise CommandError(f"--ca-file: {ca_file} holds no certificate in PEM form", status=Status.USAGE) from error
    except OSError as error:
        raise CommandError(f"--ca-file: {ca_file}: {error.strerror or error}", status=Status.USAGE) from error
    return ca_file


def quoted(part: str) -> str:
    """A part of a path; what people type may hold a slash."""
    return quote(part, safe="")


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


_POLICY = re.compile(r'"(\w+)";q=(\d+);w=\d+', re.ASCII)
_STATE = re.compile(r'"(\w+)";r=(\d+);t=(\d+)', re.ASCII)


def _allowance(headers: Mapping[str, str]) -> Allowance | None:
    """The windows that `RateLimit-Policy` and `RateLimit` tell; None where there are no limits."""
    limits = dict(_POLICY.findall(headers.get("RateLimit-Policy", "")))
    now = time.monotonic()
    windows = [
        Window(int(limits[name]), int(remaining), now + int(seconds))
        for name, remaining, seconds in _STATE.findall(headers.get("RateLimit", ""))
        if name in limits
    ]
    return Allowance(tuple(windows)) if windows else None


def _retry_after(answer: requests.Response) -> int | None:
    """Seconds after which the same request may be made again; None unless there were too many."""
    after = answer.headers.get("Retry-After", "")
    return int(after) if answer.status_code == 429 and after.isdecimal() else None


def _silently(_seconds: int) -> None:
    """Nobody watches."""


def _expired(answer: requests.Response) -> bool:
    """Not only TOKEN_EXPIRED: with a wrong clock here, a token may be refused before we think that it is over."""
    return error_of(answer).get("code") in ("TOKEN_EXPIRED", "UNAUTHORIZED")
