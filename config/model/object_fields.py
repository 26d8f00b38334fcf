"""Fields that several kinds of objects have: names, descriptions, labels and tags, header fields that proxies and rules
set or remove. And which objects others name: policies and lists in entries and fields, and how such names are written.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, NamedTuple, Self

from pydantic import AfterValidator, ConfigDict, Field, StrictBool, StrictStr, model_validator

from config.model import json_patterns
from config.model.fields import InvalidResource, Text, name_text, object_name, plain_text
from config.net.entries import GEO, names_list
from config.text.upstream_lines import LABELS_MAX

if TYPE_CHECKING:
    from config.model.plans import StoredRules
    from config.model.proxies import ProxyRecord
from collections.abc import Mapping
from typing import Literal

from pydantic import WithJsonSchema

from config.model.declaration import Given, Group, Storable, Viewed
from config.model.fields import InvalidProxy
from config.net.names import OWN_FIELDS, canonical_name

READ_ONLY_FIELDS = frozenset(
    {"id", "upstream_count", "entry_count", "rule_count", "used_by", "status", "created_at", "updated_at"}
)
"""Fields of the responses about all of them that no request may set."""

_LIST_NAME = re.compile(json_patterns.LIST_NAME, re.ASCII)
_LABEL = re.compile(json_patterns.LABEL_NAME, re.ASCII)


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


def plain_or_empty(text: str) -> str:
    """`text`, empty or a plain one. Raises `ValueError`."""
    return text and plain_text(text)


Tag = Annotated[StrictStr, Text(0, 64, name_text, pattern=json_patterns.NAME, minLength=1)]
Description = Annotated[
    StrictStr,
    Field(max_length=500),
    AfterValidator(plain_or_empty),
    json_patterns.text_or_none(json_patterns.PLAIN, 500),
]
TAGS_MAX = 50
"""Tags of a proxy or an account."""
Tags = Annotated[list[Tag], Field(max_length=TAGS_MAX)]
SomeTags = Annotated[Tags, Field(min_length=1)]


class Chosen(Viewed):
    """Objects of another kind: all of them, or each that the other fields name."""

    all: bool = False

    def view(self) -> dict[str, Any]:
        """What it names, as a request writes it."""
        return {name: value for name, value in self.model_dump().items() if value}


class ChosenInput(Storable):
    """Such a choice in a request, which names `SELECTED`: `all`, or each that `tags` or the field `BY` names."""

    SELECTED: ClassVar[str]
    BY: ClassVar[str]

    all: StrictBool | None = None
    tags: SomeTags | None = None

    @model_validator(mode="after")
    def _names_some(self) -> Self:
        if not any(self.model_dump().values()):
            raise ValueError(f'must name {self.SELECTED}: {{"all": true}}, {{"{self.BY}": ["…"]}} or {{"tags": ["…"]}}')
        return self


def selecting(by: str) -> ConfigDict:
    """`model_config` of a `ChosenInput`, for the description of the API."""
    everything: dict[str, Any] = {"required": ["all"], "properties": {"all": {"const": True}}}
    some: list[Any] = [everything, {"required": [by]}, {"required": ["tags"]}]
    return ConfigDict(json_schema_extra={"anyOf": some})


def retagged(present: Sequence[str], add: Sequence[str], remove: Collection[str]) -> list[str]:
    """`present` without what is removed, and with what is added at its end. Raises `InvalidResource`."""
    both = next((each for each in add if each in remove), None)
    if both is not None:
        raise InvalidResource("remove_tags", f"{both!r} is in add_tags, too")
    kept = list(dict.fromkeys([*(each for each in present if each not in remove), *add]))
    if len(kept) > TAGS_MAX:
        raise InvalidResource("add_tags", f"would make {len(kept)} tags; at most {TAGS_MAX} are allowed")
    return kept


PREFIXES: Final = {"list:": "lists", "geo:": "lists", "pool:": "pools"}
"""What a text begins with that names an object of a collection: `list:mirrors:443`, `geo:world:country=DE`."""
HIDDEN: Final = "***"
_SINGULAR: Final = {"lists": "list", "pools": "pool", "policies": "policy"}


class Named(NamedTuple):
    """That `field` names an object of a collection; `is_place`: a part of a database of places."""

    collection: str
    name: str
    field: str
    is_place: bool = False

    @property
    def kind(self) -> str:
        """What one object of the collection is called."""
        return _SINGULAR[self.collection]

    @property
    def key(self) -> str:
        """The object as messages name it: `pool:paris`."""
        return f"{self.kind}:{self.name}"

    def misfit(self, kind: str) -> str:
        """Why it can't name a list of this kind, empty if it can."""
        if self.collection != "lists" or self.is_place == (kind == GEO):
            return ""
        if self.is_place:
            return f"the list {self.name!r} has {kind}: it is named as list:{self.name}"
        return f"the list {self.name!r} is a database: name a part of it as geo:{self.name}:country=DE or …:asn=64500"


def named_in(texts: Iterable[str] | None, field: str) -> Iterator[Named]:
    """The objects that the entries of a list name; `field` is that of the list."""
    for index, text in enumerate(texts or ()):
        found = named_by(text, f"{field}[{index}]")
        if found is not None:
            yield found


def named_by(text: str, field: str) -> Named | None:
    """The object that a text names, None if it is none."""
    prefix, colon, rest = text.partition(":")
    collection = PREFIXES.get(prefix + colon)
    if collection is None or (collection == "lists" and not names_list(text)):
        return None
    return Named(collection, rest.partition(":")[0], field, prefix == GEO)


def without_names(entries: Iterable[str]) -> list[str]:
    """Entries for people who are not to know what objects are called: `list:***:443`, `geo:***:country=DE`."""
    return [_without_name(each) if named_by(each, "") else each for each in entries]


def _without_name(entry: str) -> str:
    prefix, _, rest = entry.partition(":")
    _, colon, more = rest.partition(":")
    return f"{prefix}:{HIDDEN}{colon}{more}"


def names_of_proxy(proxy: ProxyRecord) -> Iterator[Named]:
    """The objects that a proxy names."""
    if proxy.policy is not None:
        yield Named("policies", proxy.policy, "policy")
    if proxy.pool is not None:
        yield Named("pools", proxy.pool, "pool")
    for name in ("allow_destinations", "deny_destinations"):
        yield from named_in(getattr(proxy.access, name), f"access.{name}")


def names_of_settings(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[Named]:
    """The objects that settings name, of which these are values by group and key."""
    if policy := settings.get("proxy", {}).get("policy"):
        yield Named("policies", policy, "proxy.policy")


def names_of_rules(rules: StoredRules) -> Iterator[Named]:
    """The objects that an account or a plan names."""
    if rules.policy is not None:
        yield Named("policies", rules.policy, "policy")
    for name in ("allow_destinations", "deny_destinations"):
        yield from named_in(getattr(rules, name), name)


HEADERS_MAX = 50
HEADER_VALUE_MAX = 4096
HEADERS_SIZE_MAX = 8192
"""Characters of names and values that are set: origins take heads of 8 to 16 KiB."""

_TOKEN = re.compile(json_patterns.FIELD_NAME, re.ASCII)
_VALUE = re.compile(json_patterns.FIELD_VALUE, re.ASCII)
_PER_CONNECTION = re.compile(r"(?:ntlm|negotiate|nego2|kerberos)\b", re.IGNORECASE)
"""Schemes that authenticate the connection (RFC 4559): the next request on it would be of that user, too."""


def _name(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise ValueError("must be the name of a header field")
    if canonical_name(text) in OWN_FIELDS:
        raise ValueError(f"must not be {text}: the proxy sets it itself")
    return text


def _value(text: str) -> str:
    if _VALUE.fullmatch(text) is None:
        raise ValueError("must be visible characters of ASCII, with blanks inside at most")
    return text


def _distinct(names: Any) -> Any:
    seen: dict[str, str] = {}
    for name in names:
        if seen.setdefault(canonical_name(name), name) is not name:
            raise ValueError(f"must not name {name} twice" + _as_written(name, seen[canonical_name(name)]))
    return names


def _as_written(name: str, before: str) -> str:
    return "" if name == before else f": some servers take {before} for the same"


def _bounded(given: dict[str, str]) -> dict[str, str]:
    if sum(len(name) + len(value) for name, value in given.items()) > HEADERS_SIZE_MAX:
        raise ValueError(f"must have at most {HEADERS_SIZE_MAX} characters in names and values")
    for name, value in given.items():
        if canonical_name(name) == "authorization" and _PER_CONNECTION.match(value):
            raise ValueError(f"must not set {name} to a scheme that authenticates the whole connection")
    return given


def set_and_removed(to_set: Mapping[str, str], remove: Iterable[str]) -> tuple[int, str] | None:
    """The first of `remove` that `to_set` has, too, and why that is refused; None: there is none."""
    named = {canonical_name(name) for name in to_set}
    twice = next(((index, name) for index, name in enumerate(remove) if canonical_name(name) in named), None)
    return twice and (twice[0], f"is {twice[1]}, which `set` has, too: it replaces all that there are")


def _any_case(name: str) -> str:
    return "".join(f"[{each.upper()}{each}]" if each.isalpha() else each for each in name).replace("-", "[-_]")


_NAME_SCHEMA = {
    "pattern": json_patterns.FIELD_NAME,
    "not": {"pattern": f"^(?:{'|'.join(map(_any_case, sorted(OWN_FIELDS)))})$"},
}
_VALUE_SCHEMA = json_patterns.text(json_patterns.FIELD_VALUE, 1, HEADER_VALUE_MAX)
HeaderName = Annotated[StrictStr, AfterValidator(_name)]
HeaderValue = Annotated[StrictStr, Field(min_length=1, max_length=HEADER_VALUE_MAX), AfterValidator(_value)]
HeadersToSet = Annotated[
    dict[HeaderName, HeaderValue],
    Field(max_length=HEADERS_MAX),
    AfterValidator(_distinct),
    AfterValidator(_bounded),
    json_patterns.mapping(_NAME_SCHEMA, _VALUE_SCHEMA, HEADERS_MAX),
]
HeadersToRemove = Annotated[
    list[HeaderName],
    Field(max_length=HEADERS_MAX),
    AfterValidator(_distinct),
    WithJsonSchema({"type": "array", "items": {"type": "string", **_NAME_SCHEMA}, "maxItems": HEADERS_MAX}),
]


Via = Literal["pseudonym", "on", "off"]
Forwarded = Literal["off", "x-forwarded-for", "rfc7239"]
ADDED_FIELDS: dict[str, str] = {"x-forwarded-for": "x-forwarded-for", "rfc7239": "forwarded"}
"""The field that each mode of `forwarded` adds."""


class ProxyHeaders(Group):
    """Which header fields the proxy adds, sets and removes in plain HTTP.

    `via` is its entry in `Via`, `forwarded` the field that tells the client's address; `set` and `remove` are of
    requests.
    """

    via: Annotated[Via, Given(Via)] = "pseudonym"
    forwarded: Annotated[Forwarded, Given(Forwarded)] = "off"
    set: Annotated[dict[str, str], Given(HeadersToSet)] = Field(default_factory=dict)
    remove: Annotated[list[str], Given(HeadersToRemove)] = Field(default_factory=list)


def check_headers(headers: ProxyHeaders) -> None:
    """Raises `InvalidProxy` where two of its parts contradict each other."""
    twice = set_and_removed(headers.set, headers.remove)
    if twice is not None:
        raise InvalidProxy(f"headers.remove[{twice[0]}]", twice[1])
    for name in headers.set:
        if canonical_name(name) == ADDED_FIELDS.get(headers.forwarded):
            raise InvalidProxy(f"headers.set.{name}", f"must not be what headers.forwarded adds: {headers.forwarded}")
