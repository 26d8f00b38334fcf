"""Views of what clients of a proxy copy."""

from __future__ import annotations

from api.openapi.schemas.resources import ResponseModel


class SnippetTexts(ResponseModel):
    """For each kind of client the lines to copy; null for one that can't speak the proxy's protocol.

    `PASSWORD` stands for the password, which nobody can show.
    """

    url: str
    curl: str
    environment: str
    git: str
    pip: str
    apt: str | None
    docker: str | None
    chromium: str
    firefox: str


class Snippets(ResponseModel):
    """Lines to copy for clients of a proxy."""

    snippets: SnippetTexts
