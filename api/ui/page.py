"""The dashboard as a Falcon sink below `/ui/`: a file that exists, or the page for the addresses of its screens."""

from __future__ import annotations

import re

import falcon

from api.errors import NotFound
from api.http.representation import IDENTITY, is_known, preferred
from api.ui.files import INDEX, File, all_files

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
    return known.get(path) or known[INDEX]


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
