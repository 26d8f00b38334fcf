"""The clients, how each is started, and what it is known to offer then.

Of a command, `{port}` is the capture's, `{folder}` one for the run, `{programs}` has the programs beside this module,
compiled, and `{python}` is of an environment with `PACKAGES`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

DEBIAN = (
    "chromium curl git gnutls-bin golang-go libmbedtls-dev libnss3-tools libwolfssl-dev nodejs npm "
    "openjdk-17-jdk-headless openssl wget"
)
PACKAGES = ("aiohttp", "curl_cffi", "httpx[http2]", "primp", "requests", "rnet", "uv")

NAME = "www.corpus.example"
IDN = "xn--bcher-kva.example"
LONG = ".".join(["a" * 63] * 3 + ["b" * 53, "example"])
URL = f"https://{NAME}/"
PROXY = "http://127.0.0.1:{port}"
BOTH = "h2,http/1.1"

VERSIONS = {
    "Chromium": "chromium --version",
    "GnuTLS": "gnutls-cli --version",
    "Go": "go version",
    "Java": "java -version",
    "NSS": "dpkg-query -W libnss3",
    "Node.js": "node --version",
    "Python": "{python} --version",
    "curl": "curl --version",
    "git": "git --version",
    "mbed TLS": "dpkg-query -W libmbedtls-dev",
    "npm": "npm --version",
    "openssl s_client": "openssl version",
    "pip": "{python} -m pip --version",
    "uv": "{python} -m uv --version",
    "wget": "wget --version",
    "wolfSSL": "dpkg-query -W libwolfssl-dev",
    **{
        name: f"{{python}} {{programs}}/hello.py version {name} -"
        for name in ("aiohttp", "curl_cffi", "httpx", "primp", "requests", "rnet")
    },
}


@dataclass
class Client:
    """One hello: the program, what is asked of it, and what it then offers."""

    program: str
    what: str
    command: list[str]
    alpn: str = ""
    version: str = "1.3"
    name: str = NAME
    host: str = NAME
    """Of CONNECT, for clients that do other things too."""
    server: str | None = None
    """Options of an `openssl s_server` that it connects to through the capture."""
    number: int = 0
    """Which of the hellos that come, of this command and of `before`."""
    before: list[str] | None = None
    """A command that runs first, for a session to resume."""
    environment: dict[str, str] = field(default_factory=dict)


def chromium(what: str, *options: str, **more: Any) -> Client:
    fixed = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-background-networking --timeout=8000"
    folder = f"--user-data-dir={{folder}}/{what.replace(' ', '-')}"
    command = ["chromium", *fixed.split(), folder, f"--proxy-server={PROXY}", *options, "--dump-dom", URL]
    return Client("Chromium", what, command, BOTH, **more)


def curl(what: str, *options: str, url: str = URL, alpn: str = BOTH, **more: Any) -> Client:
    return Client("curl", what, ["curl", "-sSk", "-m", "9", "-x", PROXY, *options, url], alpn, **more)


def s_client(what: str, *options: str, name: str = NAME, sent: str = NAME, alpn: str = "", **more: Any) -> Client:
    named = ["-servername", sent] if sent else ["-noservername"]
    command = ["openssl", "s_client", "-connect", "127.0.0.1:{port}", *named, *options]
    return Client("openssl s_client", what, command, alpn, name=name if sent else "", **more)


def gnutls(what: str, *options: str, sent: str = NAME, name: str = NAME, alpn: str = "", **more: Any) -> Client:
    named = [f"--sni-hostname={sent}"] if sent else ["--disable-sni"]
    command = ["gnutls-cli", "--insecure", "-p", "{port}", *named, *options, "127.0.0.1"]
    return Client("GnuTLS", what, command, alpn, name=name if sent else "", **more)


def go(what: str, *protocols: str, version: str = "1.3", sent: str = NAME, name: str = NAME) -> Client:
    command = ["{programs}/go", "127.0.0.1:{port}", sent, version, *protocols]
    return Client("Go", what, command, ",".join(protocols), version, name)


def java(what: str, protocols: str, *versions: str, name: str = NAME) -> Client:
    command = ["java", "-Djava.security.properties={programs}/java.security", "{programs}/Hello.java", "{port}", name]
    highest = {"TLSv1": "1.0"}.get(versions[0], versions[0].removeprefix("TLSv"))
    return Client("Java", what, [*command, protocols, *versions], protocols, highest, name)


def node(what: str, options: str, alpn: str = "", **more: Any) -> Client:
    return Client("Node.js", what, ["node", "{programs}/hello.mjs", "{port}", options], alpn, **more)


def nss(what: str, *options: str, **more: Any) -> Client:
    command = ["tstclnt", "-D", "-o", "-h", "127.0.0.1", "-a", NAME, "-p", "{port}", *options]
    return Client("NSS", what, command, **more)


def python(program: str, what: str, kind: str, *options: str, url: str = URL, alpn: str = "", **more: Any) -> Client:
    return Client(program, what, ["{python}", "{programs}/hello.py", kind, url, PROXY, *options], alpn, **more)


def of_environment(program: str, what: str, command: str, alpn: str = "") -> Client:
    """One that reads the proxy from its environment."""
    return Client(program, what, command.split(), alpn, environment={"https_proxy": PROXY, "HTTPS_PROXY": PROXY})


def s_client_twice(what: str, server: str, *options: str, version: str = "1.3") -> Client:
    """With a session that it has from a first connection."""
    file = f"{{folder}}/{what.replace(' ', '-')}"
    begin = ["openssl", "s_client", "-connect", "127.0.0.1:{port}", "-servername", NAME]
    command, before = [*begin, "-sess_in", file, *options], [*begin, "-sess_out", file]
    return Client("openssl s_client", what, command, version=version, server=server, number=1, before=before)


CLIENTS = [
    chromium("post-quantum share, GREASE, ECH GREASE"),
    chromium("the same once more in another order"),
    chromium("TLS 1.2 at most", "--ssl-version-max=tls1.2", version="1.2"),
    curl("HTTP/2 and 1.1"),
    curl("HTTP/1.1 alone", "--http1.1", alpn="http/1.1"),
    curl("no ALPN", "--no-alpn", alpn=""),
    curl("TLS 1.2 at most", "--tls-max", "1.2", version="1.2"),
    curl("TLS 1.0", "--tls-max", "1.0", "--tlsv1.0", "--ciphers", "DEFAULT@SECLEVEL=0", version="1.0"),
    curl("an IDN", url="https://bücher.example/", name=IDN, host=IDN),
    curl("an IPv4 address", url="https://192.0.2.1/", name="", host="192.0.2.1"),
    curl("an IPv6 address", url="https://[2001:db8::1]/", name="", host="[2001:db8::1]"),
    curl("a final dot", url=f"https://{NAME}./", host=f"{NAME}."),
    s_client("defaults"),
    s_client("no name", sent=""),
    s_client("a name in upper case with a final dot", sent="WWW.Corpus.Example."),
    s_client("a long name", sent=LONG, name=LONG),
    s_client("a Latin-1 name", sent="b\u00fccher.example", name="b\\xc3\\xbccher.example"),
    s_client(
        "many protocols", "-alpn", "h3,h2,http/1.1,http/1.0,acme-tls/1", alpn="h3,h2,http/1.1,http/1.0,acme-tls/1"
    ),
    s_client("TLS 1.1", "-tls1_1", "-cipher", "DEFAULT@SECLEVEL=0", version="1.1"),
    s_client("TLS 1.0", "-tls1", "-cipher", "DEFAULT@SECLEVEL=0", version="1.0"),
    s_client("TLS 1.2, fallback", "-tls1_2", "-fallback_scsv", version="1.2"),
    s_client_twice("a ticket of TLS 1.2", "-tls1_2"),
    s_client_twice("a ticket of TLS 1.3", "-tls1_3"),
    s_client_twice("early data", "-tls1_3 -early_data", "-early_data", "{programs}/hello.py"),
    s_client("the second one, after a HelloRetryRequest", "-groups", "X25519:P-384", server="-groups P-384", number=1),
    gnutls("defaults"),
    gnutls("ALPN", "--alpn=h2", "--alpn=http/1.1", alpn=BOTH),
    gnutls("no name", sent=""),
    gnutls("TLS 1.0", "--priority=NORMAL:-VERS-ALL:+VERS-TLS1.0", version="1.0"),
    gnutls("TLS 1.2 at most", "--priority=NORMAL:-VERS-TLS1.3", version="1.2"),
    gnutls("resumed", "--resume", server="-tls1_3", number=1),
    of_environment("git", "over GnuTLS", f"git -c http.sslVerify=false ls-remote {URL}a.git", BOTH),
    of_environment("wget", "over GnuTLS", f"wget -q -t 1 -T 9 --no-check-certificate -O - {URL}"),
    go("HTTP/2 and 1.1", "h2", "http/1.1"),
    go("no ALPN"),
    go("TLS 1.2 at most", version="1.2"),
    go("TLS 1.0", version="1.0"),
    go("a final dot", sent=f"{NAME}."),
    go("an IPv4 address", sent="192.0.2.1", name=""),
    java("HTTP/2 and 1.1", BOTH, "TLSv1.3", "TLSv1.2"),
    java("TLS 1.2", "", "TLSv1.2"),
    java("TLS 1.0", "", "TLSv1"),
    node("HTTP/2 and 1.1", json.dumps({"servername": NAME, "ALPNProtocols": ["h2", "http/1.1"]}), BOTH),
    node("no name", "{}", name=""),
    node(
        "TLS 1.1",
        json.dumps({"servername": NAME, "minVersion": "TLSv1.1", "maxVersion": "TLSv1.1", "ciphers": "ALL@SECLEVEL=0"}),
        version="1.1",
    ),
    of_environment("npm", "", f"npm view --registry={URL} --fetch-retries=0 --strict-ssl=false a"),
    nss("defaults"),
    nss("TLS 1.2", "-V", "tls1.2:tls1.2", version="1.2"),
    nss("two shares, tickets, OCSP, SCT", "-u", "-T", "-U", "-G"),
    nss("ECH GREASE", "-i", "100"),
    Client("mbed TLS", "ALPN", ["{programs}/mbedtls", "{port}", NAME, "h2"], "h2", "1.2"),
    Client("wolfSSL", "ALPN", ["{programs}/wolfssl", "{port}", NAME, BOTH], BOTH),
    of_environment("Python", "urllib", f"{{python}} {{programs}}/hello.py urllib {URL} {PROXY}", "http/1.1"),
    python("Python", "ssl, HTTP/2 and 1.1", "ssl", "TLSv1_3", "h2", "http/1.1", url=NAME, alpn=BOTH),
    python("Python", "ssl, TLS 1.0", "ssl", "TLSv1", url=NAME, version="1.0"),
    python("aiohttp", "", "aiohttp", alpn="http/1.1"),
    python("httpx", "HTTP/2", "httpx", alpn="http/1.1,h2"),
    python("requests", "", "requests", alpn="http/1.1"),
    of_environment(
        "pip", "", f"{{python}} -m pip download --retries=0 -q -i {URL} --trusted-host {NAME} a", "http/1.1"
    ),
    of_environment("uv", "rustls", f"{{python}} -m uv pip install -q --dry-run --index-url {URL} a", BOTH),
    *(python("primp", f"rustls as {each}", "primp", each, alpn=BOTH) for each in ("chrome_145", "firefox_146")),
    *(
        python("curl_cffi", f"BoringSSL as {each}", "curl_cffi", each, alpn=BOTH)
        for each in (
            "chrome99",
            "chrome110",
            "chrome131",
            "chrome152",
            "safari153",
            "safari270_ios",
            "firefox155",
            "tor145",
        )
    ),
    *(
        python("rnet", f"BoringSSL as {each}", "rnet", each, alpn=BOTH)
        for each in ("Chrome137", "Firefox139", "OkHttp5")
    ),
]
