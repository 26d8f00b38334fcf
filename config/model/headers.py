"""Which header fields a proxy adds of its own: `headers` of a proxy."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, StrictStr

from config.model import json_patterns
from config.model.fields import Input

VIA = ("pseudonym", "on", "off")
"""Values of `headers.via`; the first one is the default."""


def _via(text: str) -> str:
    if text not in VIA:
        raise ValueError(f"must be one of {', '.join(VIA)}")
    return text


class HeadersInput(Input):
    """`headers` of a request."""

    via: Annotated[StrictStr, AfterValidator(_via), json_patterns.one_of(*VIA)] | None = None


class ProxyHeaders(BaseModel):
    """Stored: see `HeadersInput`."""

    via: Literal["pseudonym", "on", "off"] = "pseudonym"
