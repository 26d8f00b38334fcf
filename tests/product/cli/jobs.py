"""For tests of `proxyfleet run`: whether a job can be isolated here, and a site with what jobs fetch."""

from __future__ import annotations

import functools
import hashlib
import io
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from api.cli.isolation import IsolationUnavailable, check_isolation
from tests.kit.http_origins import serving
from tests.product.e2e.repositories import make_wheel

PYTHON = "/usr/bin/python3"
"""One that other users may read."""


def why_not() -> str:
    """Why no job can be isolated here; empty: it can."""
    try:
        check_isolation()
    except IsolationUnavailable as unavailable:
        return str(unavailable)
    return ""


needs_namespaces = pytest.mark.skipif(bool(why_not()), reason=why_not())

ELSEWHERE = "127.0.0.2"
"""An address of this machine that the job does not take for its own (NO_PROXY has 127.0.0.1)."""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_arguments: Any) -> None:
        """Nothing."""


class Packages:
    """A site with a git repository, a wheel, a package of npm and a page."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.url = f"http://{ELSEWHERE}:{port}"
        (folder / "hello").write_text("hello\n")

    def add_wheel(self) -> None:
        wheel = make_wheel(self.folder / "packages")
        index = self.folder / "simple" / "tiny-thing"
        index.mkdir(parents=True)
        digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        link = f'<a href="/packages/{wheel.name}#sha256={digest}">{wheel.name}</a>'
        index.joinpath("index.html").write_text(f"<!DOCTYPE html><html><body>{link}</body></html>")

    def add_npm_package(self) -> None:
        manifest = {"name": "tiny-thing", "version": "1.0.0", "main": "index.js"}
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name, content in {"package.json": json.dumps(manifest), "index.js": "module.exports = 1"}.items():
                entry = tarfile.TarInfo(f"package/{name}")
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content.encode()))
        (self.folder / "tiny-thing-1.0.0.tgz").write_bytes(archive.getvalue())
        digest = hashlib.sha1(archive.getvalue()).hexdigest()
        tarball = {"tarball": f"{self.url}/tiny-thing-1.0.0.tgz", "shasum": digest}
        versions = {"1.0.0": {**manifest, "dist": tarball}}
        package = {"name": "tiny-thing", "dist-tags": {"latest": "1.0.0"}, "versions": versions}
        (self.folder / "tiny-thing").write_text(json.dumps(package))


@contextmanager
def packages_in(folder: Path) -> Iterator[Packages]:
    """The site with these files, as long as it runs."""
    folder.mkdir()
    server = ThreadingHTTPServer((ELSEWHERE, 0), functools.partial(_Quiet, directory=folder))
    with serving(server):
        yield Packages(folder, int(server.server_address[1]))
