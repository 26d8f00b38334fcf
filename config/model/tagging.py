"""Tags that are added to or removed from what has others."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import Field, StrictStr, model_validator

from config.model.fields import Body, InvalidResource, example
from config.model.proxies import TAGS_MAX, Tags

TAGGED_MAX = 1_000
"""Proxies that one request may tag."""

ProxyId = Annotated[StrictStr, Field(min_length=1, max_length=64)]


_SOME: list[Any] = [
    {"required": [name], "properties": {name: {"type": "array", "minItems": 1}}} for name in ("add_tags", "remove_tags")
]


class ProxyTagging(Body):
    """Tags to add to these proxies, and tags to remove; their other tags stay."""

    model_config = example(
        {"ids": ["prx_0123456789abcdef"], "add_tags": ["berlin"], "remove_tags": ["office"]}, anyOf=_SOME
    )

    ids: Annotated[list[ProxyId], Field(min_length=1, max_length=TAGGED_MAX, json_schema_extra={"uniqueItems": True})]
    add_tags: Tags = Field(default_factory=list)
    remove_tags: Tags = Field(default_factory=list)

    @model_validator(mode="after")
    def _changes_some(self) -> ProxyTagging:
        if not (self.add_tags or self.remove_tags):
            raise ValueError("must have add_tags or remove_tags")
        return self


def retagged(present: Sequence[str], add: Sequence[str], remove: Collection[str]) -> list[str]:
    """`present` without what is removed, and with what is added at its end. Raises `InvalidResource`."""
    both = next((each for each in add if each in remove), None)
    if both is not None:
        raise InvalidResource("remove_tags", f"{both!r} is in add_tags, too")
    kept = list(dict.fromkeys([*(each for each in present if each not in remove), *add]))
    if len(kept) > TAGS_MAX:
        raise InvalidResource("add_tags", f"would make {len(kept)} tags; at most {TAGS_MAX} are allowed")
    return kept
