"""The dashboard as a Falcon sink below `/ui/`: a file that exists, or the page for the addresses of its screens.

The files are read once, and only one that was there can be requested: no path reaches the disk. A wheel has a gzip and
a brotli form beside each file. In a checkout there are none, and gzip is made here.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

import falcon

from api.errors import NotFound
from api.http.representation import GZIP, IDENTITY, is_known, preferred

PREFIX = "/ui"
_SINK = re.compile(r"/ui(?:/(?P<path>.*))?\Z", re.DOTALL)
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,10}\Z")
_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types svelte-trusted-html",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}
_INDEX = "index.html"
_SUFFIXES = {".br": "br", ".gz": GZIP}
"""In order of preference."""
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}
_HASHED = "assets/"
"""The folder of files whose names have a hash of their content."""


@dataclass(frozen=True, slots=True)
class File:
    """A file in all its encodings; `identity` is always one."""

    media_type: str
    hashed: bool
    content: Mapping[str, bytes]
    etags: Mapping[str, str]

    @property
    def encodings(self) -> tuple[str, ...]:
        """Those that are compressed, best first."""
        return tuple(name for name in _SUFFIXES.values() if name in self.content)

    @property
    def cache_control(self) -> str:
        """A name with a hash never gets another content; the page itself is checked at each use."""
        return "public, max-age=31536000, immutable" if self.hashed else "no-cache"


@cache
def all_files() -> Mapping[str, File]:
    """By path below `/ui/`. Raises `FileNotFoundError` in a checkout whose page was removed."""
    return files_in(files("api.ui") / "static")


def files_in(folder: Traversable) -> Mapping[str, File]:
    """By path below the folder; a form beside a file is one of its encodings. Raises as `all_files` does."""
    raw = dict(_walk(folder, ""))
    if _INDEX not in raw:
        raise FileNotFoundError("api/ui/static/index.html: missing; scripts/build-ui makes it")
    return {path: _file(path, raw) for path in raw if _type(path)}


def _walk(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        path = prefix + entry.name
        if entry.is_dir():
            yield from _walk(entry, f"{path}/")
        else:
            yield path, entry.read_bytes()


def _file(path: str, raw: Mapping[str, bytes]) -> File:
    forms = {name: raw[path + suffix] for suffix, name in _SUFFIXES.items() if path + suffix in raw}
    if not forms:
        packed = gzip.compress(raw[path], mtime=0)
        forms = {GZIP: packed} if len(packed) < len(raw[path]) else {}
    content = {**forms, IDENTITY: raw[path]}
    digest = hashlib.sha256(raw[path]).hexdigest()[:20]
    etags = {name: f'"{digest}"' if name == IDENTITY else f'"{digest}-{name}"' for name in content}
    return File(_type(path), path.startswith(_HASHED), content, etags)


def _type(path: str) -> str:
    return next((kind for suffix, kind in _TYPES.items() if path.endswith(suffix)), "")


def add_dashboard(app: falcon.App[falcon.Request, falcon.Response]) -> None:
    """Serve the dashboard. To be called after other sinks were added: Falcon tries the last one first."""
    app.add_sink(serve, _SINK)


def is_dashboard(path: str) -> bool:
    """Whether this path of a request is one of the dashboard."""
    return path.startswith(f"{PREFIX}/") or path == PREFIX


def serve(req: falcon.Request, resp: falcon.Response, **found: str | None) -> None:
    """Serve the file at `found["path"]` below `/ui/`; `/ui` alone redirects.

    Raises `NotFound` for a file that doesn't exist and 405 for methods other than GET and HEAD.
    """
    if req.method not in ("GET", "HEAD"):
        raise falcon.HTTPMethodNotAllowed(["GET", "HEAD"])
    path = found["path"]
    if path is None:
        resp.status = falcon.HTTP_308
        resp.set_header("Location", f"{PREFIX}/")
        return
    _write(req, resp, _found(path))


def _found(path: str) -> File:
    known = all_files()
    if path not in known and _EXTENSION.search(path):
        raise NotFound("The file")
    return known.get(path) or known[_INDEX]


def _write(req: falcon.Request, resp: falcon.Response, file: File) -> None:
    encoding = preferred(req.get_header("Accept-Encoding"), file.encodings)
    resp.set_headers({**_HEADERS, "Cache-Control": file.cache_control, "ETag": file.etags[encoding]})
    if encoding != IDENTITY:
        resp.set_header("Content-Encoding", encoding)
    if is_known(req.get_header("If-None-Match"), file.etags[encoding]):
        resp.status = falcon.HTTP_304
        return
    resp.content_type = file.media_type
    resp.data = file.content[encoding]
