"""Paths that people try before they have read anything: each leads to where that is."""

from __future__ import annotations

from typing import Any

import falcon

POINTERS = {
    "/": "/api/v1/docs",
    "/docs": "/api/v1/docs",
    "/openapi.json": "/api/v1/openapi.json",
}


class Pointer:
    """A Falcon resource: 302 to `path`, which stands in the body, too, in the envelope of all answers."""

    def __init__(self, path: str) -> None:
        self._path = path

    def on_get(self, _req: Any, resp: falcon.Response) -> None:
        """To where it is."""
        resp.status = falcon.HTTP_302
        resp.set_header("Location", self._path)
        resp.media = {"success": True, "data": {"location": self._path}}

    on_head = on_get
