"""Fields that pools, lists and policies have in common: objects that any number of proxies may name."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StrictStr

from config.model import json_patterns
from config.model.fields import plain_text
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
