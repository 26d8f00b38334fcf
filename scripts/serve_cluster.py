"""Three nodes on this machine with a PostgreSQL of their own, for who wants to try a fleet: scripts/serve --cluster.

The nodes are at 127.0.0.1 to 127.0.0.3, each with the same port. All data are in a temporary folder, and end with it.
"""

from __future__ import annotations

import argparse
import re
import secrets
import shlex
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.kit.cluster import Nodes
from tests.kit.postgresql_server import OLDEST, Server, programs
from tests.kit.product import Product

ROLES = {"fra1": "full", "fra2": "full", "edge1": "edge"}
"""The nodes by name; the first one makes the fleet."""
OWN_SESSION = ("setsid",)
"""A process does not end by Ctrl-C itself."""
MISSING = f"""PostgreSQL {OLDEST} or newer is needed and was not found.
On Debian and Ubuntu: apt-get install postgresql. Elsewhere its programs initdb and postgres have to be on the PATH."""


class Node(Product):
    """The product with its name, at an address of its own; everything it has is below `directory`."""

    def __init__(self, name: str, host: str, port: int, directory: Path, env: Mapping[str, str]) -> None:
        directory.mkdir(mode=0o700)
        super().__init__(env, wrapper=OWN_SESSION, directory=directory)
        self.name, self.host, self.port, self.base_url = name, host, port, f"http://{host}:{port}"

    @property
    def line(self) -> list[str]:
        python, *rest = super().line
        return [python, "-P", *rest]  # of the current directory nothing is imported, which may be a checkout

    def command(self) -> list[str]:
        return [*super().command(), "--host", self.host, "--lab"]  # each, so that all have the same settings


@contextmanager
def fleet(folder: Path, port: int) -> Iterator[str]:
    """All of it for the time of the block: what there is to know. Raises `AssertionError`."""
    assert programs() is not None, MISSING
    settings = {
        "ADMIN_PASSWORD": secrets.token_urlsafe(15),
        "METRICS__PUBLISH": "",
        "SECURITY__RATE_LIMITING__ENABLED": "true",
    }
    print("Starting PostgreSQL …", flush=True)
    (folder / "postgresql").mkdir(mode=0o700)
    at_a_socket = Server(folder=folder / "postgresql", wrapper=OWN_SESSION, listen_addresses="")
    with Nodes(at_a_socket) as nodes:
        print("Starting three nodes …", flush=True)
        products = []
        for number, name in enumerate(ROLES, 1):
            host = f"127.0.0.{number}"
            products.append(nodes.of(partial(Node, name, host, port, folder / name), settings, host))
        print("Making a fleet of them …", flush=True)
        first, *others = products
        nodes.init(first, first.name)
        for each in others:
            nodes.join(each, first, each.name, ROLES[each.name])
        for each in others:
            each.wait_healthy()
        yield _description(folder, products, nodes.dsn)


def _description(folder: Path, nodes: list[Node], dsn: str) -> str:
    found = re.search(r"lab +(http://[^ /]+/)", nodes[0].log)
    origin = "http://example.com/" if found is None else found[1]
    password = nodes[0].password
    lines = [f"A fleet of three nodes is running. Logs and data are in {folder}, and are removed at the end."]
    lines += [f"  {each.name:9} {each.base_url:22} {ROLES[each.name]}" for each in nodes]
    lines += [
        f"  sign in   printf %s {shlex.quote(password)} | proxyfleet login --url {nodes[0].base_url} --password-stdin",
        f"            or at {nodes[1].base_url}/ui/ as `admin` with the password {password}",
        "  try       proxyfleet proxies create one --protocol http --port 3128 --host '{address}'",
        *(f"            curl -x http://{each.host}:3128 {origin}" for each in nodes[1:]),
        "            proxyfleet nodes tokens",
        f"  status    proxyfleet cluster status --data-dir {nodes[1].data_dir}",
        f"  database  psql {shlex.quote(dsn)}",
        "  end       Ctrl-C",
    ]
    return "\n".join(lines)


def _end(*_signal: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Until Ctrl-C."""
    parser = argparse.ArgumentParser(prog="scripts/serve --cluster", description=__doc__)
    parser.add_argument("--port", type=int, default=8080, help="where each node has its API")
    port = parser.parse_args().port
    for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, _end)
    try:
        with tempfile.TemporaryDirectory(prefix="pf-") as name:
            folder = Path(name)
            folder.chmod(0o711)  # for the user of PostgreSQL
            with fleet(folder, port) as description:
                print(description, flush=True)
                while True:
                    signal.pause()
    except KeyboardInterrupt:
        return 0
    except (AssertionError, LookupError, OSError) as error:  # no user `postgres` is a LookupError
        print(f"scripts/serve: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
