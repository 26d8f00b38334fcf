"""Configuration for clients of the proxies: the PAC file, snippets to copy, and whether they trust a certificate."""

from __future__ import annotations

import json
import re
import shlex
import ssl
from collections.abc import Iterable
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import quote

from api.call import Call, RawBody, Reply
from api.engine.operation import PROXY, V1, get, resource
from api.engine.responses import ResponseModel
from api.errors import Invalid, NotFound
from api.http.query import Query, choice, text
from config.model.choices import UpstreamProtocol
from config.model.fleet_accounts import FleetAccount
from config.model.proxies import ProxyRecord

MEDIA_TYPE = "application/x-ns-proxy-autoconfig"

_KEYWORDS = {"http": "PROXY", "https": "HTTPS", "socks4": "SOCKS", "socks5": "SOCKS5"}
_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[A-Za-z0-9._-]{1,253})(:[0-9]{1,5})?", re.ASCII)

# Patterns with asterisks would match 127.example.com: a page could make a browser bypass the proxy.
_LOCAL = """  const local = /^(127(\\.[0-9]{1,3}){3}|\\[?::1\\]?|.+\\.localhost)$/i;
  if (isPlainHostName(host) || local.test(host)) {
    return "DIRECT";
  }
"""


def pac_file(proxies: Iterable[ProxyRecord], own_host: str, direct: bool) -> str:
    """A PAC file for these proxies, in their order; with `direct`, a connection without a proxy comes last.

    `own_host` is the host of those that listen at all addresses.
    """
    choices = [f"{_KEYWORDS[proxy.usual_protocol]} {authority(proxy, own_host)}" for proxy in proxies]
    result = "; ".join([*choices, "DIRECT"] if direct else choices)
    return f"function FindProxyForURL(url, host) {{\n{_LOCAL}  return {json.dumps(result)};\n}}\n"


def authority(proxy: ProxyRecord, own_host: str) -> str:
    """The address of a proxy for clients: `host:port`."""
    host = own_host if is_every_address(proxy.host) else proxy.host
    return f"[{host}]:{proxy.port}" if ":" in host else f"{host}:{proxy.port}"


def is_every_address(host: str) -> bool:
    """Whether a proxy of this host listens at all addresses of the machine."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False


def host_of(authority_given: str | None) -> str | None:
    """The host of a `Host` header without its port and brackets; None when it is malformed."""
    match = _AUTHORITY.fullmatch(authority_given or "")
    return match[1].strip("[]") if match else None


LOCAL = "localhost,127.0.0.1,::1"
_SCHEMES = {"http": "http", "https": "https", "socks4": "socks4a", "socks5": "socks5h"}
"""As curl has them: with the `a` and the `h` the proxy resolves names, not the client."""


def lines_for(
    proxy: ProxyRecord,
    own_host: str,
    private_ca: bool = False,
    username: str | None = None,
    socks4_by_name: bool = False,
) -> dict[str, str | None]:
    """The lines for each kind of client, as this user or else as the proxy's first one.

    `private_ca`: the proxy's certificate is of no public authority. `socks4_by_name`: SOCKS4 lets this user in by name.
    """
    url = _url(proxy, own_host, username, proxy.usual_protocol, socks4_by_name)
    private = private_ca and proxy.protocol == "https"
    return {
        "url": url,
        "curl": _curl(url, private),
        "socks": _curl(_url(proxy, own_host, username, "socks5")) if proxy.protocol == "mixed" else None,
        "environment": _environment(url),
        "python": _python(proxy, url, private),
        "git": _git(url, private),
        "pip": _pip(proxy, url, private),
        "apt": _apt(proxy, url),
        "docker": _docker(proxy, url),
        "chromium": _chromium(proxy, own_host),
        "firefox": _firefox(proxy, own_host),
    }


def _url(
    proxy: ProxyRecord, own_host: str, username: str | None, protocol: UpstreamProtocol, socks4_by_name: bool = False
) -> str:
    """The proxy as a URL, with its user name and a placeholder for the password; `protocol` is one that it speaks."""
    who = _credentials(proxy, username, protocol, socks4_by_name) if proxy.auth.enabled else ""
    return f"{_SCHEMES[protocol]}://{who}{authority(proxy, own_host)}"


def _credentials(proxy: ProxyRecord, username: str | None, protocol: UpstreamProtocol, socks4_by_name: bool) -> str:
    """SOCKS4 has no password: the colon is there all the same, since without it git asks for one."""
    own = [name for name in (proxy.auth.username, *(each.username for each in proxy.accounts)) if name]
    name = username or next(iter(own), None)
    if protocol != "socks4":
        return f"{quote(name or 'USER', safe='')}:PASSWORD@"
    return f"{quote(name, safe='')}:@" if name and (name in own or socks4_by_name) else "CREDENTIAL:@"


def _curl(url: str, private_ca: bool = False) -> str:
    return f"curl {'--proxy-cacert CA.pem ' if private_ca else ''}--proxy {shlex.quote(url)} https://example.com/"


def _environment(url: str) -> str:
    """Both spellings: curl reads http_proxy in small letters alone, others the capitals first."""
    names = ("http_proxy", "https_proxy", "all_proxy")
    lines = [f"export {name}={shlex.quote(url)} {name.upper()}={shlex.quote(url)}" for name in names]
    return "\n".join([*lines, f"export no_proxy={LOCAL} NO_PROXY={LOCAL}"])


def _python(proxy: ProxyRecord, url: str, private_ca: bool) -> str:
    """For requests, whose bundle of authorities is for proxies and targets alike."""
    package = "requests[socks]" if proxy.protocol.startswith("socks") else "requests"
    bundle = ['# cat "$(python3 -m certifi)" CA.pem > bundle.pem'] if private_ca else []
    verify = ', verify="bundle.pem"' if private_ca else ""
    proxies = json.dumps({"http": url, "https": url})
    get = f'print(requests.get("https://example.com/", proxies=proxies{verify}).status_code)'
    return "\n".join([f"# pip install '{package}'", *bundle, "import requests", "", f"proxies = {proxies}", get])


def _git(url: str, private_ca: bool) -> str:
    lines = [f"git config --global http.proxy {shlex.quote(url)}"]
    return "\n".join([*lines, 'git config --global http.proxySSLCAInfo "$PWD/CA.pem"'] if private_ca else lines)


def _pip(proxy: ProxyRecord, url: str, private_ca: bool) -> str:
    """One bundle is for proxies and packages alike, so that the private authority joins the public ones."""
    lines = [f"pip config set global.proxy {shlex.quote(url)}"]
    if private_ca:
        own = "python3 -c 'import pip._vendor.certifi as own; print(own.contents())'"
        lines = [f"{{ {own}; cat CA.pem; }} > pip-ca.pem", *lines, 'pip config set global.cert "$PWD/pip-ca.pem"']
    return "\n".join(["pip install pysocks", *lines] if proxy.protocol.startswith("socks") else lines)


def _apt(proxy: ProxyRecord, url: str) -> str | None:
    """A file in /etc/apt/apt.conf.d; apt-transport-http(1) knows http, https and socks5h."""
    if proxy.protocol == "socks4":
        return None
    return f'Acquire::http::Proxy "{url}";\nAcquire::https::Proxy "{url}";'


def _docker(proxy: ProxyRecord, url: str) -> str | None:
    """`/etc/docker/daemon.json`; Go's net/http knows http, https and socks5 (which resolves at the proxy)."""
    if proxy.protocol == "socks4":
        return None
    spoken = url.replace("socks5h://", "socks5://")
    return json.dumps({"proxies": {"http-proxy": spoken, "https-proxy": spoken, "no-proxy": LOCAL}}, indent=2)


def _needs_socks_credentials(proxy: ProxyRecord) -> bool:
    return proxy.auth.enabled and proxy.protocol.startswith("socks")


def _chromium(proxy: ProxyRecord, own_host: str) -> str:
    """It asks for a user name and a password by itself, but not with SOCKS."""
    if _needs_socks_credentials(proxy):
        return "# Chromium sends no credentials to a SOCKS proxy: use an http or https proxy"
    return f"chromium --proxy-server={shlex.quote(f'{proxy.usual_protocol}://{authority(proxy, own_host)}')}"


def _firefox(proxy: ProxyRecord, own_host: str) -> str:
    """Lines of `user.js`."""
    if _needs_socks_credentials(proxy):
        return "// Firefox sends no credentials to a SOCKS proxy: use an http or https proxy"
    host, _, port = authority(proxy, own_host).rpartition(":")
    host = host.strip("[]")
    if proxy.protocol == "https":  # only a PAC can say it
        text = f'function FindProxyForURL(url, host) {{ return "HTTPS {authority(proxy, own_host)}"; }}'
        return _preferences({"type": 2, "autoconfig_url": "data:text/javascript," + quote(text)})
    if proxy.usual_protocol == "http":
        return _preferences({"type": 1, "http": host, "http_port": int(port), "ssl": host, "ssl_port": int(port)})
    version = int(proxy.protocol[-1])
    settings: dict[str, object] = {"type": 1, "socks": host, "socks_port": int(port), "socks_version": version}
    return _preferences({**settings, "socks_remote_dns": True})


def _preferences(values: dict[str, object]) -> str:
    return "\n".join(f'user_pref("network.proxy.{name}", {json.dumps(value)});' for name, value in values.items())


# --- certificates ---


def is_private(cert_file: Path) -> bool:
    """Whether the chain in `cert_file` (PEM) is issued by none of the public authorities (those of certifi).

    A file that can't be read counts as private, as certificates made by hand are.
    """

    from cryptography import x509  # few ask for the lines for clients

    try:
        chain = x509.load_pem_x509_certificates(cert_file.read_bytes())
        return chain[-1].issuer.public_bytes() not in _public()
    except (OSError, ValueError):
        return True


@cache
def _public() -> bytes:
    """The public authorities as DER, which holds their names as they stand in what they have issued."""

    from requests.utils import DEFAULT_CA_BUNDLE_PATH  # as above

    context = ssl.create_default_context(cafile=DEFAULT_CA_BUNDLE_PATH)
    return b"".join(context.get_ca_certs(binary_form=True))


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
    "The host name or address by which clients reach this machine; `proxy.public_name`, or that of this request, by "
    "default",
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
        call.services.nodes.for_clients(proxy.record)
        for proxy in call.services.proxies.all()
        if proxy.record.status == "active"
        and (tag is None or tag in proxy.record.tags)
        and (scope is None or proxy.record.id in scope)
    ]
    if not found:
        raise NotFound("An active proxy" if tag is None else "An active proxy with this tag")
    script = pac_file(found, _own_host(call), query.direct == "true")
    return Reply({}, headers=_HEADERS, document=RawBody(script.encode(), MEDIA_TYPE))


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
    record = call.services.nodes.for_clients(record)
    return lines_for(record, _own_host(call), _has_private_ca(call, record), username, socks4_by_name)


def _has_private_ca(call: Call, record: ProxyRecord) -> bool:
    if record.protocol != "https":
        return False
    own = record.tls.cert_file if record.tls else None
    file = own or call.services.settings.server.tls.cert_file
    return file is not None and is_private(Path(file))


_HEADERS = {"Cache-Control": "no-cache"}


def _own_host(call: Call) -> str:
    """The host by which clients reach this machine: the query's `host`, else the setting, else that of this request.

    A request to 0.0.0.0 came from this machine.
    """
    given = call.query.host
    if given is not None:
        host = host_of(f"[{given}]" if ":" in given else given)
        if host is None:
            raise Invalid("host", "must be a host name or an IP address")
        return host
    if call.services.settings.proxy.public_name:
        return call.services.settings.proxy.public_name
    host = host_of(call.headers.get("host"))
    if host is None:
        raise Invalid("Host", "must be a host, perhaps with a port; or give the query parameter host")
    return "127.0.0.1" if is_every_address(host) else host


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
