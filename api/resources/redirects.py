"""Redirects from the usual paths of an API's documentation to the real ones, and of a browser to the dashboard."""

from __future__ import annotations

import falcon

DASHBOARD = "/ui/"
REDIRECTS = {
    "/": "/api/v1/docs",
    "/docs": "/api/v1/docs",
    "/openapi.json": "/api/v1/openapi.json",
}


class Redirect:
    """A Falcon resource: 302 to `path`, which is also in the body, in the envelope of all responses."""

    def __init__(self, path: str) -> None:
        self._path = path

    def on_get(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Redirect."""
        path = self._target(req, resp)
        resp.status = falcon.HTTP_302
        resp.set_header("Location", path)
        resp.media = {"success": True, "data": {"location": path}}

    on_head = on_get

    def _target(self, _req: falcon.Request, _resp: falcon.Response) -> str:
        return self._path


class RootRedirect(Redirect):
    """The one of `/`: to the dashboard for clients that accept HTML by name, as browsers do."""

    def _target(self, req: falcon.Request, resp: falcon.Response) -> str:
        resp.set_header("Vary", "Accept")
        kinds = {part.partition(";")[0].strip().lower() for part in req.accept.split(",")}
        return DASHBOARD if "text/html" in kinds else self._path
