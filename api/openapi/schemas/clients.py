"""Views of configuration snippets for clients."""

from __future__ import annotations

from api.openapi.schemas.base import ResponseModel


class SnippetTexts(ResponseModel):
    """Lines to copy for each kind of client; null for clients that don't support the proxy's protocol.

    `PASSWORD` stands for the password, which is stored only as a hash, `USER` for a user name that the proxy does not
    know, `CREDENTIAL` for the secret of a credential. `socks` is for SOCKS of a `mixed` proxy.
    """

    url: str
    curl: str
    socks: str | None
    environment: str
    python: str
    git: str
    pip: str
    apt: str | None
    docker: str | None
    chromium: str
    firefox: str


class Snippets(ResponseModel):
    """Lines to copy for clients of a proxy."""

    snippets: SnippetTexts


class ProxySnippets(ResponseModel):
    """The snippets for a proxy."""

    proxy: str
    snippets: SnippetTexts


class SnippetsOfAccount(ResponseModel):
    """Snippets for proxies that an account may use; `total` is the number of all of them."""

    proxies: list[ProxySnippets]
    total: int
