"""Starts the clients one after another, and writes the file of the tests. See `scripts/client-hellos`."""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from actors.net.client_hello import HelloReader
from client_hellos.capture import Capture
from client_hellos.clients import CLIENTS, DEBIAN, PACKAGES, VERSIONS, Client

HERE = Path(__file__).parent
FILE = HERE.parents[1] / "tests" / "unit" / "actors" / "forwarding" / "client_hellos.json"
TIME = 40.0
"""Seconds for a client."""
BUILDS = (
    "go build -o go hello.go",
    "cc mbedtls.c -o mbedtls -lmbedtls -lmbedcrypto -lmbedx509",
    "cc wolfssl.c -o wolfssl -lwolfssl",
    "openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -subj /CN=corpus.example",
)


class Clients:
    """What all clients share: a folder, the programs and a certificate."""

    def __init__(self, folder: Path, python: str) -> None:
        self._programs = folder / "programs"
        self._values = {"folder": str(folder), "programs": str(self._programs), "python": python}
        shutil.copytree(HERE / "programs", self._programs)
        for command in BUILDS:
            subprocess.run(command.split(), cwd=self._programs, check=True, stderr=subprocess.DEVNULL)

    def version(self, program: str) -> str:
        """The first number in what it says."""
        found = re.search(r"\d+(\.\d+)+[\w.+:~-]*", self._output(VERSIONS[program].split(), {}))
        return "" if found is None else found[0]

    def hello(self, client: Client) -> tuple[bytes, str]:
        """The hello that is asked for, and what the client said in the end. Raises `LookupError` without one."""
        with self._server(client) as server, Capture(server) as capture:
            if client.before is not None:
                self._run(client, client.before, capture.port)
            output = self._run(client, client.command, capture.port)
        hellos = [data for host, data in capture.hellos if host in ("", client.host)]
        if len(hellos) <= client.number:
            raise LookupError(f"{len(hellos)} hellos of {client.program}, {client.what}, which said: {output}")
        return hellos[client.number], " ".join(output.split())[-120:]

    def _run(self, client: Client, command: list[str], port: int) -> str:
        values = {name: text.replace("{port}", str(port)) for name, text in client.environment.items()}
        return self._output([part.replace("{port}", str(port)) for part in command], values)

    def _output(self, command: list[str], environment: dict[str, str]) -> str:
        for name, value in self._values.items():
            command = [part.replace(f"{{{name}}}", value) for part in command]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=os.environ | {"HOME": self._values["folder"]} | environment,
        )
        with suppress(subprocess.TimeoutExpired):  # until then s_client has received its tickets
            process.wait(0.5)
        return process.communicate(b"Q\n", TIME)[0].decode(errors="replace")

    @contextmanager
    def _server(self, client: Client) -> Iterator[int | None]:
        """The port of a server for it; None when it needs none."""
        if client.server is None:
            yield None
            return
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        fixed = ["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-cert", "cert.pem", "-key", "key.pem"]
        with subprocess.Popen(
            [*fixed, *client.server.split()],
            cwd=self._programs,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as server:
            assert server.stdout is not None
            if "ACCEPT\n" not in server.stdout:  # reads up to that line
                raise RuntimeError(f"openssl s_server has ended before it listened at port {port}")
            yield port
            server.kill()


def main() -> None:
    """Exits with 1 when a client offers something else than `client_hellos.clients` says."""
    needs = f"Debian's {DEBIAN}; of PyPI {' '.join(PACKAGES)}"
    parser = argparse.ArgumentParser(prog="scripts/client-hellos", description=__doc__, epilog=f"It needs {needs}.")
    parser.add_argument("--python", default=sys.executable, help="of an environment with those of PyPI")
    parser.add_argument("--only", help="a program")
    parser.add_argument("file", nargs="?", type=Path, default=FILE)
    given = parser.parse_args()
    chosen = [client for client in CLIENTS if given.only in (None, client.program)]
    hellos, wrong = [], 0
    with TemporaryDirectory() as folder:
        clients = Clients(Path(folder), given.python)
        versions = {program: clients.version(program) for program in dict.fromkeys(each.program for each in chosen)}
        for client in chosen:
            data, output = clients.hello(client)
            found = HelloReader().feed(data)
            right = found is not None and found[:3] == (client.name, client.alpn, client.version)
            wrong += not right
            print(f"{'right' if right else 'WRONG'}: {client.program}, {client.what}: {found}\n    {output}")
            hellos.append(
                {
                    "client": f"{client.program}, {client.what}".rstrip(", "),
                    "name": client.name,
                    "alpn": client.alpn,
                    "version": client.version,
                    "hello": base64.b64encode(data).decode("ascii"),
                }
            )
    given.file.write_text(json.dumps({"versions": versions, "hellos": hellos}, indent=1) + "\n")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
