"""Configuration for clients of the proxies: the PAC file, and snippets to copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from api.call import Call, Document, Reply
from api.engine.operation import PROXY, V1, get, resource
from api.errors import Invalid, NotFound
from api.http.query import Query, choice, text
from api.openapi.schemas.base import ResponseModel
from api.services import client_snippets
from api.services.client_snippets import MEDIA_TYPE, is_private
from config.model.fleet_accounts import FleetAccount
from config.model.proxies import ProxyRecord


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


SNIPPETS_MAX = 20
"""Proxies in one response."""
_HOST: Any = text(
    "The host name or address by which clients reach this machine; that of this request by default",
    "proxy.example.com",
    253,
    1,
)


class OwnHost(Query):
    """The host of the proxies in the snippets."""

    host: str | None = _HOST


class AccountSnippets(OwnHost):
    """The proxies of the snippets, and their host."""

    proxy: str | None = text("Only for the proxy with this name or id", "office", 128, 1)


class GetSnippets(OwnHost):
    """The query of the snippets of one proxy."""

    username: str | None = text("The user name in the lines; that of the proxy by default", "alice", 255, 1)


class GetPac(Query):
    """The proxies of the PAC file, and their host."""

    tag: str | None = text("Only proxies with this tag", "office", 64, 1)
    host: str | None = _HOST
    direct: str = choice("Whether clients connect directly when no proxy responds", ("true", "false"), "false")


def pac(call: Call) -> Reply:
    """Get a PAC file of the active proxies.

    Returns a proxy auto-configuration file for browsers with all active proxies, or with those of one `tag`. It needs
    no credentials when `security.public_pac` is on.
    """
    query: GetPac = call.query
    tag = query.tag
    scope = call.identified.scope if call.identified else None
    found = [
        proxy.record
        for proxy in call.services.proxies.all()
        if proxy.record.status == "active"
        and (tag is None or tag in proxy.record.tags)
        and (scope is None or proxy.record.id in scope)
    ]
    if not found:
        raise NotFound("An active proxy" if tag is None else "An active proxy with this tag")
    script = client_snippets.pac(found, _own_host(call), query.direct == "true")
    return Reply({}, headers=_HEADERS, document=Document(script.encode(), MEDIA_TYPE))


def get_snippets(call: Call) -> Reply:
    """Get client configuration snippets.

    Returns commands and configuration lines that make curl, Python, git, pip, apt, docker and browsers use this proxy.
    Passwords, and user names that the proxy does not know, appear as placeholders.
    """
    record = call.services.proxies.get(call.params["proxy_id"]).record
    return Reply({"snippets": snippets_of(call, record, call.query.username)})


def get_account_snippets(call: Call) -> Reply:
    """Get client configuration snippets for an account.

    Returns commands and configuration lines for each active proxy that the account may use, at most 20, or for one of
    them. The password appears as a placeholder. A key that only makes credentials of the account may read them.
    """
    return snippets_of_account(call, call.services.fleet_accounts.get(call.params["account_id"]).record)


def snippets_of_account(call: Call, account: FleetAccount) -> Reply:
    """The snippets of the proxies that the account may use."""
    query: AccountSnippets = call.query
    records = [each.record for each in call.services.self_service.proxies(account)]
    found = [each for each in records if query.proxy in (None, each.id, each.name)]
    views = [
        {"proxy": each.name, "snippets": snippets_of(call, each, account.username, account.socks4_by_name)}
        for each in found[:SNIPPETS_MAX]
    ]
    return Reply({"proxies": views, "total": len(found)})


def snippets_of(
    call: Call, record: ProxyRecord, username: str | None = None, socks4_by_name: bool = False
) -> dict[str, str | None]:
    """The snippets of a proxy for this user, or else for its first one."""
    return client_snippets.of(record, _own_host(call), _has_private_ca(call, record), username, socks4_by_name)


def _has_private_ca(call: Call, record: ProxyRecord) -> bool:
    if record.protocol != "https":
        return False
    own = record.tls.cert_file if record.tls else None
    file = own or call.services.settings.server.tls.cert_file
    return file is not None and is_private(Path(file))


_HEADERS = {"Cache-Control": "no-cache"}


def _own_host(call: Call) -> str:
    """The host by which clients reach this machine: the query's `host`, else that of this request.

    A request to 0.0.0.0 came from this machine.
    """
    given = call.query.host
    if given is not None:
        host = client_snippets.host_of(f"[{given}]" if ":" in given else given)
        if host is None:
            raise Invalid("host", "must be a host name or an IP address")
        return host
    host = client_snippets.host_of(call.headers.get("host"))
    if host is None:
        raise Invalid("Host", "must be a host, perhaps with a port; or give the query parameter host")
    return "127.0.0.1" if client_snippets.is_every_address(host) else host


ROWS = resource("", read="proxy.read")(
    get(
        "/proxy.pac",
        "getPac",
        pac,
        query=GetPac,
        produces=MEDIA_TYPE,
        errors=(404,),
        public_if="public_pac",
        scoped=True,
    ),
    get(
        f"{V1}/accounts/{{account_id}}/snippets",
        "getAccountSnippets",
        get_account_snippets,
        SnippetsOfAccount,
        query=AccountSnippets,
        account_scoped=True,
    ),
    get(f"{PROXY}/snippets", "getSnippets", get_snippets, Snippets, query=GetSnippets),
)
