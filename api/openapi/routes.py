"""The operations that describe the API: its OpenAPI document, and a page to read and try it.

The page is swagger-ui (Apache-2.0), as it is distributed; its version is in `api/openapi/page/VERSION`. It loads
nothing from other hosts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from api.call import Call, Document, Reply
from api.engine.operation import NONE, V1, Operation, get, resource
from api.errors import NotFound
from api.openapi.document import build

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
_HEADERS = {
    "Content-Security-Policy": _ONLY_FROM_HERE,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}


def describe(table: Iterable[Operation]) -> tuple[Operation, ...]:
    """The operations that serve the description of `table` and of themselves."""

    @cache
    def content() -> bytes:
        return json.dumps(build((*table, *rows)), ensure_ascii=False, separators=(",", ":")).encode()

    def openapi(_call: Call) -> Reply:
        """Get the OpenAPI document.

        Returns this API as an OpenAPI 3.1 document, without the usual envelope. It needs no credentials.
        """
        return Reply({}, document=Document(content(), "application/json"))

    rows = resource(V1, read=NONE)(
        get("/openapi.json", "getOpenapi", openapi),
        get("/docs", "getDocs", page, produces="text/html"),
        get("/docs/{file}", "getDocsFile", page_file, produces="*/*"),
    )
    return rows


def page(_call: Call) -> Reply:
    """Show the documentation page.

    Shows the operations of this API in the browser and sends requests to them. The page loads nothing from other hosts.
    """
    return _file("index.html")


def page_file(call: Call) -> Reply:
    """Get a file of the documentation page.

    Returns a script or style sheet that the documentation page loads. It needs no credentials.
    """
    name = call.params["file"]
    if name not in _TYPES:
        raise NotFound("The file")
    return _file(name)


def _file(name: str) -> Reply:
    return Reply({}, headers=_HEADERS, document=Document(_content(name), _TYPES[name]))


@cache
def _content(name: str) -> bytes:
    return (files("api.openapi") / "page" / name).read_bytes()
