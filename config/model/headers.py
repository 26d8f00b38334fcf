"""Which header fields a proxy adds of its own: `headers` of a proxy."""

from __future__ import annotations

from typing import Annotated, Literal

from config.model.declaration import Given, Group

Via = Literal["pseudonym", "on", "off"]


class ProxyHeaders(Group):
    """Which header fields the proxy adds; `via` is its entry in `Via`."""

    via: Annotated[Via, Given(Via)] = "pseudonym"
