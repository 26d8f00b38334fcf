"""The cookie that keeps a session in a browser: its name, its attributes, and which pages may use it.

Over TLS it is `__Host-proxyfleet`: no other host and no page without TLS can set that name (RFC 6265bis, section
4.1.3.2). Without TLS there is a cookie only for a browser on this machine, which reaches the API by a loopback name.
Elsewhere it would be sent in clear for weeks; there a session lasts until its page is left.

Holders of accounts have one of their own, `__Host-proxyfleet-holder`, which has no other end than their token.

A browser sends it to this API alone for pages of this API alone (`SameSite=Strict`, and `Site.is_cross_origin` for
pages of other ports and schemes, which are the same site). It is read by the operations that refresh and end sessions.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from api.http.request_site import Site
from config.net.names import is_loopback

NAME = "proxyfleet"
SECURE_NAME = f"__Host-{NAME}"
PATH = "/api/v1/auth"
HOLDER_NAME = f"{NAME}-holder"
HOLDER_PATH = "/api/v1/me"
USES = (f"{PATH}/refresh", f"{PATH}/logout")
"""The paths of the operations that it authorizes."""
CROSS_ORIGIN = "the cookie of a session is only for pages of this API: Sec-Fetch-Site, or else Origin, has to name it"


def has_place(site: Site, page: str | None = None) -> bool:
    """Whether the cookie would be sent in clear nowhere but within the machine of the browser.

    `page` is the address or origin that the browser has, if that is known. Behind a proxy that rewrites `Host` and
    isn't trusted, the API seems to be on the machine of the browser and is not; without `Secure` the cookie of an https
    page would also go to http addresses of that host.
    """
    return site.secure or (is_loopback(site.host) and (page is None or _is_here(page)))


def _is_here(page: str) -> bool:
    try:
        parts = urlsplit(page)
        return parts.scheme == "http" and is_loopback(parts.hostname or "")
    except ValueError:
        return False


def set_cookie(site: Site, token: str, age: int, name: str = NAME, path: str = PATH) -> str:
    """A `Set-Cookie` with `token` that is kept for `age` seconds."""
    named, scope = (f"__Host-{name}", "Path=/; Secure") if site.secure else (name, f"Path={path}")
    return f"{named}={token}; Max-Age={age}; {scope}; HttpOnly; SameSite=Strict"


def clear_cookie(site: Site) -> str:
    """A `Set-Cookie` that deletes it."""
    return set_cookie(site, "", 0)


def is_sent(cookies: str | None, secure: bool) -> bool:
    """Whether the header `Cookie` has it."""
    return bool(_values(cookies, secure))


def token_in(cookies: str | None, secure: bool, name: str = NAME) -> str | None:
    """The token in the header `Cookie`; None when there is none, or several, of which one is not ours."""
    values = _values(cookies, secure, name)
    return values[0] if len(values) == 1 else None


def _values(cookies: str | None, secure: bool, name: str = NAME) -> list[str]:
    name = f"__Host-{name}" if secure else name
    pairs = (part.strip(" \t").partition("=") for part in (cookies or "").split(";"))
    return [value for key, _, value in pairs if key == name]
