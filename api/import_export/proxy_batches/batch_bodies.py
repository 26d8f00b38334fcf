"""What a request for a change of many proxies has."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    StrictStr,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from config.model import json_patterns
from config.model.choices import ProxyProtocol, ProxyStatus
from config.model.fields import Body, example
from config.model.object_fields import Tags
from config.model.proxies import ProxyCreate, ProxyUpdate

BATCH_MAX = 10_000
"""Proxies that one request may create, change and delete."""
FILTERS_MAX = 100
"""Changes of a request that name their proxies by `where`."""
TAGGED_MAX = 1_000
"""Proxies that one request may tag."""
_TEXT_MAX, _TAGS_MAX = 128, 20
"""As the query of the list has them."""

ProxyId = Annotated[StrictStr, Field(min_length=1, max_length=64)]


_Ids = Annotated[
    list[ProxyId], Field(min_length=1, max_length=BATCH_MAX), Field(json_schema_extra={"uniqueItems": True})
]
_SomeIds = Annotated[
    list[ProxyId], Field(min_length=1, max_length=TAGGED_MAX), Field(json_schema_extra={"uniqueItems": True})
]


def _listed(given: Any) -> Any:
    return [given] if isinstance(given, str) else given


_TEXT = json_patterns.text(lowest=1, highest=_TEXT_MAX)
_TEXTS: Any = {"type": "array", "items": _TEXT.json_schema, "minItems": 1, "maxItems": _TAGS_MAX}
_Text = Annotated[StrictStr, Field(min_length=1, max_length=_TEXT_MAX)]
_OneOrMore = Annotated[
    list[_Text],
    Field(min_length=1, max_length=_TAGS_MAX),
    BeforeValidator(_listed),
    json_patterns.any_of(_TEXT, WithJsonSchema(_TEXTS)),
]
_ALONE: list[Any] = [{"required": [name], "maxProperties": 1} for name in ("all", "ids")]
_NOT_ALONE = {"minProperties": 1, "not": {"anyOf": [{"required": ["all"]}, {"required": ["ids"]}]}}


class ProxySelection(Body):
    """Proxies that are there: `all`, those with these `ids`, or those that match each filter, as in their list."""

    model_config = example({"tag": ["office"]}, anyOf=[*_ALONE, _NOT_ALONE])

    all: Literal[True] | None = None
    ids: _Ids | None = None
    status: ProxyStatus | None = None
    protocol: ProxyProtocol | None = None
    q: _Text | None = None
    tag: _OneOrMore | None = None
    account: _Text | None = None

    @model_validator(mode="after")
    def _is_clear(self) -> Self:
        given = self.model_fields_set
        if not given or (len(given) > 1 and given & {"all", "ids"}):
            raise ValueError('must have filters, or {"ids": […]} alone, or {"all": true} alone')
        return self


class ProxySet(ProxyUpdate):
    """A change of proxies: what is not given stays. `add_tags` and `remove_tags` keep the other tags.

    `status` `active` starts a proxy, `inactive` stops it.
    """

    model_config = example({"limits": {"bandwidth_out": 1_000_000}, "add_tags": ["berlin"]})

    status: ProxyStatus | None = None
    add_tags: Tags | None = None
    remove_tags: Tags | None = None


_BY_ID = {"required": ["id"], "not": {"anyOf": [{"required": ["where"]}, {"required": ["set"]}]}}
_BY_FILTER = {"required": ["where", "set"], "maxProperties": 2}


class BatchedChange(ProxySet):
    """A change of the proxy with this `id`; or what to `set` of each that `where` names."""

    model_config = example({"where": {"tag": ["office"]}, "set": {"sleep_after": 600}}, anyOf=[_BY_ID, _BY_FILTER])

    where: ProxySelection | None = None
    set: ProxySet | None = None
    id: ProxyId | None = None

    @field_validator("id")
    @classmethod
    def _is_one_or_the_other(cls, given: str | None, info: ValidationInfo) -> str | None:
        if info.data.get("where") is not None or info.data.get("set") is not None:
            raise ValueError("must be left out beside where and set")
        return given

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if self.id is None and (self.where is None or self.set is None):
            raise ValueError("must have an id, or where and set")
        others = self.model_fields_set - {"where", "set"}
        if self.where is not None and others:
            raise ValueError(f"must have {min(others)} in set, since it has where")
        return self


class ProxyBatch(Body):
    """Proxies to create, to change and to delete, all of them or none."""

    model_config = example(
        {
            "create": [{"name": "paris", "port": 3129, "protocol": "http"}],
            "update": [{"where": {"tag": ["office"]}, "set": {"sleep_after": 600, "add_tags": ["berlin"]}}],
        }
    )

    create: Annotated[list[ProxyCreate], Field(max_length=BATCH_MAX)] = Field(default_factory=list)
    update: Annotated[list[BatchedChange], Field(max_length=BATCH_MAX)] = Field(default_factory=list)
    delete: Annotated[list[ProxyId], Field(max_length=BATCH_MAX)] = Field(default_factory=list)


_SOME: list[Any] = [
    {"required": [name], "properties": {name: {"type": "array", "minItems": 1}}} for name in ("add_tags", "remove_tags")
]


class ProxyTagging(Body):
    """Tags to add to these proxies, and tags to remove; their other tags stay."""

    model_config = example(
        {"ids": ["prx_0123456789abcdef"], "add_tags": ["berlin"], "remove_tags": ["office"]}, anyOf=_SOME
    )

    ids: _SomeIds
    add_tags: Tags = Field(default_factory=list)
    remove_tags: Tags = Field(default_factory=list)

    @model_validator(mode="after")
    def _changes_some(self) -> Self:
        if not (self.add_tags or self.remove_tags):
            raise ValueError("must have add_tags or remove_tags")
        return self

    def batch(self) -> ProxyBatch:
        """The same as a batch."""
        add, remove = self.add_tags, self.remove_tags
        return ProxyBatch(update=[BatchedChange(id=each, add_tags=add, remove_tags=remove) for each in self.ids])
