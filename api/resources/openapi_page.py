"""The API about itself: its description, and a page to read and try it, which needs nothing from elsewhere.

The page is swagger-ui (Apache-2.0), as it is distributed; its version is in `api/openapi/page/VERSION`.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from api.http.call import Call, Document, Reply
from api.http.errors import not_found

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "start.js": "text/javascript; charset=utf-8",
    "swagger-ui-bundle.js": "text/javascript; charset=utf-8",
    "swagger-ui.css": "text/css; charset=utf-8",
}
_ONLY_FROM_HERE = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""swagger-ui sets styles of its own in the page; scripts come from here alone."""
_HEADERS = {"Content-Security-Policy": _ONLY_FROM_HERE, "Referrer-Policy": "no-referrer"}


@cache
def _description() -> bytes:
    from api.openapi.document import build  # the table names this module's handlers, so it is complete only later
    from api.operations import OPERATIONS

    return json.dumps(build(OPERATIONS), ensure_ascii=False, separators=(",", ":")).encode()


@cache
def _content(name: str) -> bytes:
    folder: Traversable = files("api.openapi") / "page"
    return (folder / name).read_bytes()


def openapi(_call: Call) -> Reply:
    """The OpenAPI document, bare."""
    return Reply({}, document=Document(_description(), "application/json"))


def page(_call: Call) -> Reply:
    """The page."""
    return _file("index.html")


def page_file(call: Call) -> Reply:
    """A file of the page."""
    name = call.params["file"]
    if name not in _TYPES:
        raise not_found("The file")
    return _file(name)


def _file(name: str) -> Reply:
    return Reply({}, headers=_HEADERS, document=Document(_content(name), _TYPES[name]))
