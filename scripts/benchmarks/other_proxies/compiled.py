"""The peers from Debian, written in C: squid, tinyproxy, haproxy, dante, microsocks and stunnel.

Each runs as it is usually run, with nothing cached and with one line of log for each request or connection.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.peers import Program, Speaks, program, version_of
from benchmarks.processes import free_port


class Squid(Program):
    """squid without its cache, one process, access log to a file."""

    def __init__(self, folder: Path) -> None:
        folder.chmod(0o777)  # it gives up root's rights before it opens its log
        port = free_port()
        configuration = f"""
http_port 127.0.0.1:{port}
http_access allow all
cache deny all
cache_mem 8 MB
access_log stdio:{folder}/squid-access.log
cache_log {folder}/squid-cache.log
pid_filename none
netdb_filename none
pinger_enable off
coredump_dir none
shutdown_lifetime 0 seconds
max_filedescriptors 16384
"""
        squid = [program("squid"), "-N", "-f", str(folder / "squid.conf")]
        super().__init__("squid", folder, port, squid, configuration)


class Tinyproxy(Program):
    """tinyproxy with a log line for each connection. It closes a client's connection after each response."""

    keeps_alive = False
    asks_version = ("-v",)

    def __init__(self, folder: Path) -> None:
        port = free_port()
        configuration = f"""
Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients 5000
LogFile "{folder}/tinyproxy.log"
LogLevel Connect
"""
        tinyproxy = [program("tinyproxy"), "-d", "-c", str(folder / "tinyproxy.conf")]
        super().__init__("tinyproxy", folder, port, tinyproxy, configuration)


class Haproxy(Program):
    """haproxy in front of one fixed target; `mode` is `http` or `tcp`. It is no forward proxy: a reference only.

    With `certificate` (a PEM file with the key) it speaks TLS to clients.
    """

    speaks: Speaks = "relay"
    asks_version = ("-v",)

    def __init__(
        self, folder: Path, mode: str, target: int, splice: bool = False, certificate: Path | None = None
    ) -> None:
        port = free_port()
        name = f"haproxy-{'tls' if certificate else mode}{'-splice' if splice else ''}"
        configuration = f"""
global
    nbthread 1
    maxconn 4000
    log stdout format raw local0
defaults
    mode {mode}
    log global
    option {mode}log
    {"option splice-auto" if splice else ""}
    timeout connect 10s
    timeout client 600s
    timeout server 600s
listen bench
    bind 127.0.0.1:{port} {f"ssl crt {certificate}" if certificate else ""}
    server origin 127.0.0.1:{target}
"""
        haproxy = [program("haproxy"), "-db", "-f", str(folder / f"{name}.conf")]
        super().__init__(name, folder, port, haproxy, configuration)
        self.tls = certificate is not None


class Dante(Program):
    """dante with a log line at both ends of each session. It forks children for clients as they come."""

    speaks: Speaks = "socks5"
    asks_version = ("-v",)

    def __init__(self, folder: Path) -> None:
        port = free_port()
        configuration = f"""
logoutput: {folder}/dante.log
errorlog: {folder}/dante-errors.log
internal: 127.0.0.1 port = {port}
external: 127.0.0.1
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 log: connect disconnect }}
"""
        dante = [program("danted"), "-f", str(folder / "dante.conf"), "-p", str(folder / "dante.pid")]
        super().__init__("dante", folder, port, dante, configuration)


class Microsocks(Program):
    """microsocks, which has a thread for each client and a line of log for each connection."""

    speaks: Speaks = "socks5"

    def __init__(self, folder: Path) -> None:
        port = free_port()
        super().__init__("microsocks", folder, port, [program("microsocks"), "-i", "127.0.0.1", "-p", str(port)])

    def version(self) -> str:
        return version_of("dpkg-query", "-W", "microsocks")  # it can't say


class Stunnel(Program):
    """stunnel from TLS to one fixed target, a line of log for each connection."""

    speaks: Speaks = "relay"
    tls = True
    asks_version = ("-version",)

    def __init__(self, folder: Path, target: int, certificate: Path) -> None:
        port = free_port()
        configuration = f"""
foreground = yes
pid =
debug = notice
[bench]
accept = 127.0.0.1:{port}
connect = 127.0.0.1:{target}
cert = {certificate}
"""
        stunnel = [program("stunnel4"), str(folder / "stunnel.conf")]
        super().__init__("stunnel", folder, port, stunnel, configuration)
