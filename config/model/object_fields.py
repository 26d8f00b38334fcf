"""Fields that several kinds of objects have: names, descriptions, labels and tags; and tags of many proxies at once."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StrictStr, model_validator

from config.model import json_patterns
from config.model.fields import Body, InvalidResource, Text, example, name_text, plain_text
from config.model.upstream_list_parser import LABELS_MAX

READ_ONLY_FIELDS = frozenset(
    {"id", "upstream_count", "entry_count", "rule_count", "status", "created_at", "updated_at"}
)
"""Fields of the responses about all of them that no request may set."""

_NAME = re.compile(json_patterns.OBJECT_NAME, re.ASCII)
_LIST_NAME = re.compile(json_patterns.LIST_NAME, re.ASCII)
_LABEL = re.compile(json_patterns.LABEL_NAME, re.ASCII)


def object_name(text: str) -> str:
    """`text`, if it may be the name of a pool, a list or a policy; else `ValueError`."""
    if _NAME.fullmatch(text) is None:
        raise ValueError(
            "must be 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or a digit, and no id"
        )
    return text


def list_name(text: str) -> str:
    """As `object_name`, of a list; else `ValueError`."""
    if _LIST_NAME.fullmatch(object_name(text)) is None:
        raise ValueError("must not be a number or a range of numbers, which would be ports behind list:")
    return text


def _label(text: str) -> str:
    if _LABEL.fullmatch(text) is None:
        raise ValueError(
            "the name of a label is 1 to 32 lower-case letters, digits and '_', beginning with a letter; "
            "session, ttl and rotate are parameters of another meaning"
        )
    return text


ObjectName = Annotated[StrictStr, AfterValidator(object_name), json_patterns.text(json_patterns.OBJECT_NAME, 1, 64)]
ListName = Annotated[StrictStr, AfterValidator(list_name), json_patterns.text(json_patterns.LIST_NAME, 1, 64)]
LabelName = Annotated[StrictStr, AfterValidator(_label)]
LabelValue = Annotated[StrictStr, Field(min_length=1, max_length=64), AfterValidator(plain_text)]
_NAMES, _VALUES = {"pattern": json_patterns.LABEL_NAME}, json_patterns.text(json_patterns.PLAIN, 1, 64)
Labels = Annotated[
    dict[LabelName, LabelValue], Field(max_length=LABELS_MAX), json_patterns.mapping(_NAMES, _VALUES, LABELS_MAX)
]
"""Labels of an upstream, such as `country`."""
SomeLabels = Annotated[
    dict[LabelName, LabelValue],
    Field(min_length=1, max_length=LABELS_MAX),
    json_patterns.mapping(_NAMES, _VALUES, LABELS_MAX, least=1),
]
"""What parameters of user names ask for."""


def _description(text: str) -> str:
    return text and plain_text(text)


Tag = Annotated[StrictStr, Text(0, 64, name_text, pattern=json_patterns.NAME, minLength=1)]
Description = Annotated[
    StrictStr,
    Field(max_length=500),
    AfterValidator(_description),
    json_patterns.text_or_none(json_patterns.PLAIN, 500),
]
TAGS_MAX = 50
"""Tags of a proxy or an account."""
Tags = Annotated[list[Tag], Field(max_length=TAGS_MAX)]
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
