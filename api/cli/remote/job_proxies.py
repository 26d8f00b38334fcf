"""The proxy of a job: which one a command gets, and the variables by which it finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from api.cli.client import ApiClient, quoted
from api.cli.errors import CommandError, Status
from api.cli.options import PROXY, find
from config.settings.env import ENV_PREFIX

# --- its environment: the address of the proxy in the variables that programs read, and no key of ours ---

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
    """The caller's variables without settings and keys of the product and without other proxies, and with this one.

    Programs agree on no list of names. curl reads `http_proxy` in small letters alone, others prefer capitals, git and
    pip read both; all take the URL with its scheme, so one value is for `http` and SOCKS proxies alike.
    """
    kept = {
        name: value
        for name, value in caller.items()
        if not name.startswith(ENV_PREFIX) and not name.lower().endswith(("_proxy", "_noproxy"))
    }
    named = {**dict.fromkeys(PROXY_VARIABLES, proxy.url), "NO_PROXY": NOT_THROUGH_PROXY}
    spelled = {spelling: value for name, value in named.items() for spelling in (name, name.lower())}
    return {**kept, **spelled, "NODE_USE_ENV_PROXY": "1"}


# --- which proxy it uses: one that the account may use, or one that is named, by name, id or URL ---

SCHEMES = ("http", "https", "socks5h", "socks4a")
"""What programs speak to proxies, the best known first. SOCKS as curl has it: the proxy resolves the names."""
_ALSO = {"socks5": "socks5h", "socks4": "socks4a"}
_USUAL_PORTS = {"http": 80, "https": 443, "socks5h": 1080, "socks4a": 1080}
_WITH_OWN_CA = "--proxy-cacert CA.pem"
"""Is in the snippet for curl where the certificate is of no public authority."""
_FORBIDDEN = ("FORBIDDEN", "INSUFFICIENT_PERMISSIONS")
"""Codes of the API with status 403."""
_LISTED = 20
"""Proxies that are looked at where none is named."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A proxy without the secret. `private_ca`: its certificate is of no public authority."""

    proxy: JobProxy
    needs_credentials: bool = True
    private_ca: bool = False


def of_account(api: ApiClient, account: str, named: str | None, called: str) -> Candidate:
    """A proxy that the account with this id may use, the first that speaks HTTP unless it is `named`.

    `called` is what the user calls the account. A URL says where the job reaches it. Raises `CommandError`.
    """
    given = _given(named)
    path = f"/accounts/{quoted(account)}/snippets"
    found = _candidates(api.get(path, proxy=None if given else named)["proxies"])
    if not found:
        every = [] if named is None else [each.proxy.name for each in _candidates(api.get(path)["proxies"])]
        raise _none_of(called, named, every, [] if every else _inactive(api, account))
    wanting = [each for each in found if each.needs_credentials]
    if not wanting:
        names = ", ".join(each.proxy.name for each in found)
        hint = "Leave out --account: a credential is of no use there, and requests would not count for the account"
        raise CommandError(f"No credentials are wanted at {names}", hint, Status.USAGE)
    best = _first(wanting)
    return best if given is None else Candidate(replace(given, username=best.proxy.username))


def is_forbidden(error: CommandError) -> bool:
    """Whether the caller is known and lacks a permission (status 403): a key that is wrong is another matter."""
    return (error.error or {}).get("code") in _FORBIDDEN


def _inactive(api: ApiClient, account: str) -> list[str]:
    """Names of the proxies that the account may use and that don't run; none where the caller may not see them."""
    try:
        proxies = api.get("/proxies", account=account, per_page=_LISTED)["proxies"]
    except CommandError:
        return []
    return [each["name"] for each in proxies if each["status"] != "active"]


def of_secret(api: ApiClient, username: str, named: str | None) -> Candidate:
    """The proxy for a secret that is given; a URL needs no API. Raises `CommandError`."""
    given = _given(named)
    if given is not None:
        return Candidate(replace(given, username=username))
    found = [each for each in _seen(api, named) if each.needs_credentials]
    if not found:
        raise CommandError("No credentials are wanted there", "Leave out --credential", Status.USAGE)
    best = _first(found)
    return replace(best, proxy=replace(best.proxy, username=username))


def open_to_all(api: ApiClient, named: str | None) -> Candidate:
    """A proxy that wants no credentials. Raises `CommandError`."""
    given = _given(named)
    if given is not None:
        return Candidate(given, needs_credentials=False)
    found = [each for each in _seen(api, named) if not each.needs_credentials]
    if not found:
        what = f"The proxy {named} wants" if named is not None else "All active proxies want"
        raise CommandError(f"{what} credentials", "Give --account NAME, or --credential FILE", Status.USAGE)
    return _first(found)


def _seen(api: ApiClient, named: str | None) -> list[Candidate]:
    """The named proxy, or the first active ones that the caller may see. Raises `CommandError`."""
    try:
        proxies = _named_or_active(api, named)
        views = [{"proxy": each["name"], **api.get(f"/proxies/{quoted(str(each['id']))}/snippets")} for each in proxies]
    except CommandError as error:
        if is_forbidden(error):
            error.hint = "Give the URL of the proxy: --proxy http://proxy.example.com:3128"
        raise
    return _candidates(views)


def _named_or_active(api: ApiClient, named: str | None) -> list[dict[str, Any]]:
    proxies: list[dict[str, Any]]
    if named is not None:
        proxies = [find(api, PROXY, named)]
        if proxies[0]["status"] != "active":
            hint = f"proxyfleet proxies start {named}"
            raise CommandError(f"The proxy {named} is not active", hint, Status.USAGE)
    else:
        proxies = api.get("/proxies", status="active", per_page=_LISTED)["proxies"]
        if not proxies:
            raise CommandError("There is no active proxy", "proxyfleet proxies create …", Status.NOT_FOUND)
    return proxies


def _first(candidates: list[Candidate]) -> Candidate:
    """The one whose protocol most programs speak, and among equals the one that is listed first."""
    return min(candidates, key=lambda each: SCHEMES.index(each.proxy.scheme))


def _candidates(views: list[dict[str, Any]]) -> list[Candidate]:
    return [_candidate(each["proxy"], each["snippets"]) for each in views]


def _candidate(name: str, snippets: Mapping[str, str]) -> Candidate:
    parts = urlsplit(snippets["url"])
    wants = parts.username is not None
    username = unquote(parts.username or "")
    proxy = JobProxy(name, parts.scheme, parts.hostname or "", parts.port or 0, username)
    return Candidate(proxy, wants, _WITH_OWN_CA in snippets["curl"])


def _given(named: str | None) -> JobProxy | None:
    """The proxy of a URL; None where it is a name. Raises `CommandError`."""
    if named is None:
        return None
    if "://" not in named:
        _, colon, port_text = named.rpartition(":")
        if colon and port_text.isdecimal():
            hint = f"Such as http://{named}"
            raise CommandError(f"--proxy: {named!r} has no scheme", hint, Status.USAGE)
        return None
    try:
        parts = urlsplit(named)
        scheme = _ALSO.get(parts.scheme, parts.scheme)
        port = parts.port if parts.port is not None else _USUAL_PORTS.get(scheme, 0)
    except ValueError:  # unmatched brackets, or an invalid port
        scheme, port = "", 0
    if scheme not in SCHEMES or not parts.hostname or not port or parts.path.strip("/") or parts.query:
        hint = f"Such as http://proxy.example.com:3128; schemes are {', '.join(SCHEMES)}"
        raise CommandError(f"--proxy: {named!r} is not the URL of a proxy", hint, Status.USAGE)
    if parts.username is not None:
        raise CommandError("--proxy: must not hold a password", "Give it by --credential FILE", Status.USAGE)
    return JobProxy(f"{scheme}://{parts.hostname}:{port}", scheme, parts.hostname, port)


def _none_of(account: str, named: str | None, names: list[str], inactive: list[str]) -> CommandError:
    if named is None or not names:
        hint = f"proxyfleet proxies start {inactive[0]}; not active: {', '.join(inactive)}" if inactive else None
        return CommandError(f"The account {account} may use no active proxy", hint, Status.NOT_FOUND)
    near = get_close_matches(named, names, n=1)
    hint = f"Did you mean {near[0]!r}? It may use: " if near else "It may use: "
    message = f"The account {account} may use no active proxy {named!r}"
    return CommandError(message, hint + ", ".join(names), Status.NOT_FOUND)
