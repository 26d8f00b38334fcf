"""Redirects from the usual paths of an API's documentation to the real ones."""

from __future__ import annotations

from typing import Any

import falcon

REDIRECTS = {
    "/": "/api/v1/docs",
    "/docs": "/api/v1/docs",
    "/openapi.json": "/api/v1/openapi.json",
}


class Redirect:
    """A Falcon resource: 302 to `path`, which is also in the body, in the envelope of all responses."""

    def __init__(self, path: str) -> None:
        self._path = path

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        """Redirect."""
        resp.status = falcon.HTTP_302
        resp.set_header("Location", self._path)
        resp.media = {"success": True, "data": {"location": self._path}}

    on_head = on_get
