"""Foreign servers as child processes, each with a configuration made here: nginx, squid, tinyproxy, pproxy, dante,
haproxy and dnsmasq.

    with nginx(cert, key) as site, squid(cert, key) as upstream:
        ...

Each listens on free ports of loopback, has a short directory of its own, and is ended by its pid. A program that is
not installed skips the test with its name.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.kit.folders import FOLDERS
from tests.kit.ports import free_port
from tests.kit.wait import wait_until

_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"  # where daemons are, also for those who are not root


def find(program: str) -> str:
    """The path of an installed program; where it is missing, the test skips and says so."""
    found = shutil.which(program, path=_PATH)
    if found is None:
        pytest.skip(f"{program} is not installed")
    return found


def needs(program: str) -> pytest.MarkDecorator:
    """Skips what it marks where `program` is missing."""
    return pytest.mark.skipif(shutil.which(program, path=_PATH) is None, reason=f"{program} is not installed")


def run(
    *command: str, stdin: bytes = b"", check: bool = True, seconds: float = 180.0
) -> subprocess.CompletedProcess[str]:
    """What the program printed, in an environment without proxies of its own; unless `check` is off it must succeed."""
    clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    raw = subprocess.run(command, capture_output=True, timeout=seconds, env=clean, input=stdin)
    done = subprocess.CompletedProcess(
        command, raw.returncode, raw.stdout.decode(errors="replace"), raw.stderr.decode(errors="replace")
    )
    assert not check or done.returncode == 0, f"{' '.join(command)}\n{done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


@contextmanager
def _folder() -> Iterator[Path]:
    """Short, and open to the account that a daemon started by root changes to."""
    folder = Path(tempfile.mkdtemp(prefix="pf-", dir=FOLDERS))
    folder.chmod(0o777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _running(folder: Path, command: Sequence[str], port: int) -> Iterator[None]:
    """The program, once something listens at `port`; its output is in the error when it does not come so far."""
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=folder)
    try:
        wait_until(lambda: process.poll() is not None or _accepts(port), f"{command[0]} listens")
        assert process.poll() is None, f"{' '.join(command)} ended:\n{(folder / 'output').read_text()}"
        yield
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """By SIGKILL, with its children: nothing of it is worth keeping, and squid takes seconds to end by itself."""
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        family = []
    process.kill()
    process.wait()
    for child in family:
        with suppress(psutil.NoSuchProcess):
            child.kill()


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@dataclass(frozen=True)
class Site:
    """A running nginx with files. `put/` below `files` takes uploads; a `.txt` is compressed and chunked on request."""

    folder: Path
    port: int
    tls_port: int
    ipv6_port: int | None

    @property
    def files(self) -> Path:
        """What is served."""
        return self.folder / "files"

    def url(self, path: str) -> str:
        """By http."""
        return f"http://127.0.0.1:{self.port}{path}"

    def tls_url(self, path: str) -> str:
        """By https."""
        return f"https://127.0.0.1:{self.tls_port}{path}"

    def ipv6_url(self, path: str) -> str:
        """By http at `::1`; without IPv6 the test skips."""
        if self.ipv6_port is None:
            pytest.skip("this machine has no IPv6 loopback")
        return f"http://[::1]:{self.ipv6_port}{path}"

    def asked(self) -> list[str]:
        """The request lines that were answered, in order."""
        return (self.folder / "access.log").read_text().splitlines()


@contextmanager
def nginx(cert: str, key: str) -> Iterator[Site]:
    """An origin for http, for https with this certificate, and for http on IPv6 where there is some."""
    program = find("nginx")
    with _folder() as folder:
        site = Site(folder, free_port(), free_port(), free_port("::1") if has_ipv6() else None)
        (site.files / "put").mkdir(parents=True)
        (folder / "nginx.conf").write_text(_nginx_configuration(site, cert, key))
        with _running(folder, [program, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"], site.port):
            yield site


def _nginx_configuration(site: Site, cert: str, key: str) -> str:
    temporary = "".join(
        f"{name}_temp_path {site.folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    return f"""
        {"user root;" if os.geteuid() == 0 else ""}
        daemon off; worker_processes 1; pid nginx.pid;
        events {{ worker_connections 512; }}
        http {{
            {temporary}
            types {{ text/html html; text/plain txt; text/css css; text/javascript js; image/svg+xml svg; }}
            log_format line '$request_method $request_uri'; access_log access.log line;
            client_max_body_size 100m; if_modified_since before;
            gzip on; gzip_proxied any; gzip_types text/plain; gzip_min_length 1;
            server {{
                listen 127.0.0.1:{site.port}; listen 127.0.0.1:{site.tls_port} ssl;
                {f"listen [::1]:{site.ipv6_port};" if site.ipv6_port else ""}
                ssl_certificate {cert}; ssl_certificate_key {key};
                root files;
                location /put/ {{ dav_methods PUT; }}
            }}
        }}"""


@contextmanager
def two_sites(cert: str, key: str, *names: str) -> Iterator[tuple[int, Path]]:
    """One nginx that serves several names with TLS at one port, each with a line that names it, as a CDN does. Yields
    the port, and the log, whose lines begin with the name that was served."""
    program = find("nginx")
    with _folder() as folder:
        port, log = free_port(), folder / "access.log"
        server = "server {{ listen 127.0.0.1:{} ssl; server_name {}; location / {{ return 200 'this is {}\n'; }} }}"
        of_names = "".join(server.format(port, name, name) for name in names)
        (folder / "nginx.conf").write_text(f"""
            {"user root;" if os.geteuid() == 0 else ""}
            daemon off; worker_processes 1; pid nginx.pid;
            events {{ worker_connections 512; }}
            http {{
                client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
                uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
                log_format line '$server_name $request_uri'; access_log {log} line;
                ssl_certificate {cert}; ssl_certificate_key {key};
                {of_names}
            }}""")
        with _running(folder, [program, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"], port):
            yield port, log


def has_ipv6() -> bool:
    """Whether `::1` can be listened at."""
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@dataclass(frozen=True)
class Relay:
    """A foreign proxy: where it listens by protocol, and the log of what it did."""

    ports: dict[str, int]
    log: Path

    def saw(self, word: str) -> bool:
        """Whether its log has `word`."""
        return self.log.exists() and word in self.log.read_text(errors="replace")


@contextmanager
def squid(cert: str, key: str, user: str | None = None, password: str = "", more: str = "") -> Iterator[Relay]:
    """squid for `http` and `https` without its cache; with `user` it wants Basic credentials. `more` are directives."""
    program = find("squid")
    with _folder() as folder:
        relay = Relay({"http": free_port(), "https": free_port()}, folder / "access.log")
        admission = "http_access allow all" if user is None else _squid_credentials(folder, user, password)
        (folder / "squid.conf").write_text(f"""
http_port 127.0.0.1:{relay.ports["http"]}
https_port 127.0.0.1:{relay.ports["https"]} tls-cert={cert} tls-key={key}
{admission}
cache deny all
cache_mem 8 MB
access_log stdio:{relay.log}
cache_log {folder}/cache.log
pid_filename none
netdb_filename none
pinger_enable off
{more}
coredump_dir none
buffered_logs off
shutdown_lifetime 0 seconds
max_filedescriptors 1024
""")
        with _running(folder, [program, "-N", "-f", str(folder / "squid.conf")], relay.ports["https"]):
            yield relay


@contextmanager
def squid_with(configuration: Path, hosts: Path, port: int) -> Iterator[Path]:
    """squid with a configuration of its own, without its cache; `port` is one of those that it listens at.
    Yields its log."""
    program = find("squid")
    with _folder() as folder:
        (folder / "squid.conf").write_text(f"""
include {configuration}
cache deny all
cache_mem 8 MB
access_log stdio:{folder}/access.log squid
cache_log {folder}/cache.log
pid_filename none
netdb_filename none
pinger_enable off
minimum_direct_rtt 0
minimum_direct_hops 0
hosts_file {hosts}
connect_retries 0
dead_peer_timeout 1 second
coredump_dir none
shutdown_lifetime 0 seconds
max_filedescriptors 1024
""")
        with _running(folder, [program, "-N", "-f", str(folder / "squid.conf")], port):
            yield folder / "access.log"


def _squid_credentials(folder: Path, user: str, password: str) -> str:
    """Its own helper checks them; the file is one of htpasswd."""
    helper = Path("/usr/lib/squid/basic_ncsa_auth")
    hashed = run(find("openssl"), "passwd", "-apr1", password).stdout.strip()
    (folder / "passwords").write_text(f"{user}:{hashed}\n")
    return f"""auth_param basic program {helper} {folder}/passwords
auth_param basic children 1 startup=1
auth_param basic realm upstream
acl known proxy_auth REQUIRED
http_access allow known
http_access deny all"""


@contextmanager
def dante(more: str = "") -> Iterator[Relay]:
    """dante for `socks4` and `socks5`, both at one port. It does not understand curl's SOCKS4a. `more` are rules."""
    program = find("danted")
    with _folder() as folder:
        port = free_port()
        relay = Relay({"socks4": port, "socks5": port}, folder / "access.log")
        (folder / "danted.conf").write_text(f"""
logoutput: {relay.log}
internal: 127.0.0.1 port = {port}
external: 127.0.0.1
clientmethod: none
socksmethod: none
client pass {{ from: 127.0.0.0/8 to: 127.0.0.0/8 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 log: connect error }}
{more}
""")
        with _running(folder, [program, "-N", "1", "-f", str(folder / "danted.conf")], port):
            yield relay


@contextmanager
def tinyproxy() -> Iterator[Relay]:
    """tinyproxy, which responds 500 to CONNECT and GET where a target refuses its connection."""
    program = find("tinyproxy")
    with _folder() as folder:
        relay = Relay({"http": free_port()}, folder / "tinyproxy.log")
        (folder / "tinyproxy.conf").write_text(f"""
Port {relay.ports["http"]}
Listen 127.0.0.1
Allow 127.0.0.1
Timeout 60
MaxClients 100
LogFile "{relay.log}"
""")
        with _running(folder, [program, "-d", "-c", str(folder / "tinyproxy.conf")], relay.ports["http"]):
            yield relay


@contextmanager
def pproxy() -> Iterator[Relay]:
    """pproxy of PyPI for `http` and `socks5` at one port, which closes the connection where it reaches no target."""
    program = find("pproxy")
    with _folder() as folder:
        port = free_port()
        with _running(folder, [program, "-l", f"http+socks5://127.0.0.1:{port}"], port):
            yield Relay({"http": port, "socks5": port}, folder / "output")


@contextmanager
def dnsmasq(name: str, address: str) -> Iterator[int]:
    """A DNS server by UDP and TCP that knows one name and asks no other server; yields its port."""
    program = find("dnsmasq")
    with _folder() as folder:
        port = free_port()
        where = [f"--port={port}", "--listen-address=127.0.0.1", "--bind-interfaces", "--no-resolv", "--no-hosts"]
        command = [program, "--keep-in-foreground", "--conf-file=/dev/null", "--pid-file", "--user=", *where]
        with _running(folder, [*command, f"--address=/{name}/{address}"], port):
            yield port


@contextmanager
def haproxy(target: int, announce: str) -> Iterator[int]:
    """A TCP balancer in front of a port of loopback; gives its own. `announce` is `send-proxy` or `send-proxy-v2`."""
    port = free_port()
    configuration = f"""
defaults
    mode tcp
    timeout connect 10s
    timeout client 60s
    timeout server 60s
listen balancer
    bind 127.0.0.1:{port}
    server proxy 127.0.0.1:{target} {announce}
"""
    with haproxy_of(configuration, port):
        yield port


@contextmanager
def haproxy_of(configuration: str, port: int) -> Iterator[Path]:
    """An haproxy that listens at `port`; gives the file of what it prints."""
    program = find("haproxy")
    with _folder() as folder:
        (folder / "haproxy.cfg").write_text(configuration)
        with _running(folder, [program, "-db", "-f", str(folder / "haproxy.cfg")], port):
            yield folder / "output"
