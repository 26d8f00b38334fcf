"""Which header fields a proxy adds of its own: `headers` of a proxy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, StrictStr

from config.model import json_patterns
from config.model.declaration import Given, Group

VIA = ("pseudonym", "on", "off")
"""Values of `headers.via`; the first one is the default."""


def _via(text: str) -> str:
    if text not in VIA:
        raise ValueError(f"must be one of {', '.join(VIA)}")
    return text


Via = Annotated[StrictStr, AfterValidator(_via), json_patterns.one_of(*VIA)]


class ProxyHeaders(Group):
    """Which header fields the proxy adds; `via` is its entry in `Via`."""

    via: Annotated[Literal["pseudonym", "on", "off"], Given(Via)] = "pseudonym"
