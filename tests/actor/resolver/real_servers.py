"""Name servers of Debian's packages, as they are used everywhere: dnsmasq, and unbound with TLS and HTTPS."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.ports import free_port
from tests.kit.wait import wait_until

UNBOUND_CONF = """
server:
    interface: 127.0.0.1@{plain}
    interface: 127.0.0.1@{tls}
    interface: 127.0.0.1@{https}
    tls-port: {tls}
    https-port: {https}
    tls-service-key: "{key}"
    tls-service-pem: "{cert}"
    do-daemonize: no
    use-syslog: no
    logfile: ""
    username: ""
    chroot: ""
    directory: "{folder}"
    pidfile: ""
    module-config: "iterator"
    do-not-query-localhost: no
    local-zone: "example." static
    local-data: "www.example. 60 IN A 192.0.2.1"
    local-data: "www.example. 60 IN AAAA 2001:db8::1"
    local-data: "example. 600 IN SOA ns.example. root.example. 1 3600 600 86400 30"
{many}
remote-control:
    control-enable: no
"""


def program(name: str) -> str:
    """Its path; skips the test without it."""
    found = shutil.which(name, path="/usr/sbin:/usr/bin:/sbin:/bin")
    if found is None:
        pytest.skip(f"{name} is not installed (apt-get install {name})")
    return found


def accepts(port: int) -> bool:
    """Whether something listens there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def running(command: list[str], ports: list[int]) -> Iterator[None]:
    """The program, once it listens."""
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: process.poll() is not None or all(map(accepts, ports)), "the name server listens")
            assert process.poll() is None, "the name server has ended"
            yield
        finally:
            process.kill()


@contextmanager
def dnsmasq() -> Iterator[str]:
    """It knows www.example and many.example, which has more addresses than fit into a datagram; yields its address."""
    port = free_port()
    many = [f"--host-record=many.example,192.0.2.{number},60" for number in range(1, 120)]
    command = [
        *(program("dnsmasq"), "--keep-in-foreground", "--no-resolv", "--no-hosts", f"--port={port}"),
        *("--listen-address=127.0.0.1", "--bind-interfaces", "--conf-file=/dev/null", "--pid-file=", "--user=root"),
        *("--host-record=www.example,192.0.2.1,2001:db8::1,60", "--local=/example/", *many),
    ]
    with running(command, [port]):
        yield f"127.0.0.1:{port}"


@contextmanager
def unbound(folder: Path, cert: str, key: str) -> Iterator[tuple[str, str, str]]:
    """Yields how it is named for plain DNS, TLS and HTTPS; its certificate is for `localhost` and 127.0.0.1."""
    plain, tls, https = free_port(), free_port(), free_port()
    many = "\n".join(f'    local-data: "many.example. 60 IN A 192.0.2.{number}"' for number in range(1, 120))
    file = folder / "unbound.conf"
    file.write_text(
        UNBOUND_CONF.format(plain=plain, tls=tls, https=https, cert=cert, key=key, folder=folder, many=many)
    )
    with running([program("unbound"), "-d", "-c", str(file)], [plain, tls, https]):
        yield f"127.0.0.1:{plain}", f"tls://127.0.0.1:{tls}", f"https://127.0.0.1:{https}/dns-query"
