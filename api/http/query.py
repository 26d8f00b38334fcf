"""Query parameters: each operation declares them once, as a class, for reading them and for the description of the API.

```
class ListProxies(Query):
    page: int = integer("The page, from 1", 1, 1_000_000, default=1)
    status: str | None = choice("Only proxies of this status", STATUSES)
```

The handler gets an instance as `call.query`; parameters that are not in the request have their default. A value that
is not allowed is an error that names the parameter, and so is an undeclared parameter: a response that ignored a filter
would be mistaken for a filtered one.

A cursor is base64 of msgpack: its kind, then its content. It is no secret and protects nothing: a forged one returns
only what the filters and the credential allow.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import msgpack

from api.errors import Invalid
from config.model import json_patterns
from config.net.entries import one_address, read_network
from config.text.formatting import parse_moment

_INTEGER = re.compile(r"-?[0-9]{1,10}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One query parameter. `read` returns the value of its text or raises `ValueError`; `example` is accepted.

    A parameter whose schema is an array may be given several times; its value is a tuple.
    """

    description: str
    schema: dict[str, Any]
    read: Callable[[str], Any]
    example: Any
    default: Any = None


class Query:
    """The query of one request. Subclasses declare the parameters; those of their bases come first."""

    parameters: ClassVar[Mapping[str, Parameter]] = {}
    _ignores_others: ClassVar[bool]

    def __init_subclass__(cls, ignore_others: bool = False) -> None:
        inherited = {name: each for base in cls.__bases__ for name, each in vars(base).get("parameters", {}).items()}
        cls.parameters = inherited | {name: each for name, each in vars(cls).items() if isinstance(each, Parameter)}
        cls._ignores_others = ignore_others

    def __init__(self, given: Mapping[str, str | list[str]]) -> None:
        """Raises `Invalid`."""
        for name in () if self._ignores_others else given:
            if name not in self.parameters:
                raise Invalid(name, f"unknown parameter; allowed: {', '.join(sorted(self.parameters))}")
        for name, parameter in self.parameters.items():
            setattr(self, name, _value(name, parameter, given.get(name)))


def _value(name: str, parameter: Parameter, given: str | list[str] | None) -> Any:
    if given is None:
        return parameter.default
    if "items" in parameter.schema:
        values = given if isinstance(given, list) else [given]
        if len(values) > parameter.schema["maxItems"]:
            raise Invalid(name, f"must not be given more than {parameter.schema['maxItems']} times")
        return tuple(_one_value(name, parameter, parameter.schema["items"], each) for each in values)
    if isinstance(given, list):
        raise Invalid(name, "must not be given twice")
    return _one_value(name, parameter, parameter.schema, given)


def _one_value(name: str, parameter: Parameter, schema: Mapping[str, Any], given: str) -> Any:
    if len(given) < schema.get("minLength", 0):
        raise Invalid(name, "must not be empty")
    if len(given) > schema.get("maxLength", len(given)):
        raise Invalid(name, f"must have at most {schema['maxLength']} characters")
    try:
        return parameter.read(given)
    except ValueError as error:
        raise Invalid(name, str(error)) from error


# The constructors return `Any`, so that a declaration has the type of its value, as with `dataclasses.field`.


def integer(description: str, lowest: int, highest: int, default: int | None = None) -> Any:
    """A whole number within limits."""

    def read(value: str) -> int:
        if not _INTEGER.fullmatch(value) or not lowest <= int(value) <= highest:
            raise ValueError(f"must be a whole number from {lowest} to {highest}")
        return int(value)

    schema = {"type": "integer", "minimum": lowest, "maximum": highest, **_default(default)}
    return Parameter(description, schema, read, lowest if default is None else default, default)


def choice(description: str, allowed: Collection[str], default: str | None = None) -> Any:
    """One of several values."""

    def read(value: str) -> str:
        if value not in allowed:
            raise ValueError(f"must be one of {', '.join(allowed)}")
        return value

    schema = {"type": "string", "enum": list(allowed), **_default(default)}
    return Parameter(description, schema, read, default or next(iter(allowed)), default)


def order(
    fields: Collection[str],
    default: str | None = None,
    description: str = "The field to sort by; `-` reverses the order",
) -> Any:
    """One of several fields, with `-` before it for the reversed order."""
    return choice(description, (*fields, *(f"-{name}" for name in fields)), default)


def text(
    description: str,
    example: str,
    highest: int = 500,
    lowest: int = 0,
    pattern: str | None = None,
    read: Callable[[str], Any] = str,
) -> Any:
    """A text of `lowest` (0 or 1) to `highest` characters. `pattern` only describes; `read` decides."""
    schema: dict[str, Any] = {"type": "string", **({} if pattern is None else {"pattern": pattern})}
    schema |= {"maxLength": highest, **({"minLength": lowest} if lowest else {})}
    return Parameter(description, schema, read, example)


def several(description: str, allowed: Collection[str], what: str, example: str) -> Any:
    """Some of several values, separated by commas; `what` is what one is called. A tuple of them, each once."""

    def read(value: str) -> tuple[str, ...]:
        given = tuple(dict.fromkeys(each.strip() for each in value.split(",")))
        for each in given:
            if each not in allowed:
                raise ValueError(f"unknown {what} {each[:50]!r}; allowed: {', '.join(allowed)}")
        return given

    one = f"({'|'.join(allowed)})"
    return text(description, example, pattern=f"^{one}(,{one})*$", read=read)


def alpn(description: str) -> Any:
    """One protocol of a TLS handshake (ALPN, RFC 7301), such as `h2`: 1 to 255 characters without a comma."""

    def read(value: str) -> str:
        if "," in value:
            raise ValueError("must be one protocol, such as h2, without a comma")
        return value

    return text(description, "h2", 255, 1, "^[^,]+$", read)


def texts(description: str, example: str, highest: int, most: int = 20) -> Any:
    """Up to `most` texts of 1 to `highest` characters, each given by itself: `tag=a&tag=b`; a tuple."""
    schema = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": highest}, "maxItems": most}
    return Parameter(description, schema, str, [example], ())


def cursor(description: str, example: str, pattern: str, read: Callable[[str], Any]) -> Any:
    """The position at which an earlier response ended."""
    return Parameter(description, {"type": "string", "pattern": pattern}, read, example)


def place(example: str, pattern: re.Pattern[str], read: Callable[[str], Any] = int) -> Any:
    """The cursor of a list whose pages end at a number, or at another text of this pattern."""

    def checked(value: str) -> Any:
        if not pattern.search(value):
            raise ValueError("must be a next_cursor of an earlier response")
        return read(value)

    return cursor("The `next_cursor` of the previous page", example, pattern.pattern, checked)


def moment(description: str) -> Any:
    """A date and time, ISO 8601, as Unix seconds. A `+` that was decoded as a space is accepted."""

    def read(value: str) -> float:
        return parse_moment(value.replace(" ", "+") if "T" in value.upper() else value)

    return Parameter(description, json_patterns.MOMENT, read, "2026-01-31T12:00:00Z")


def address(description: str) -> Any:
    """One IP address, in its usual form."""
    return Parameter(description, {"type": "string", "pattern": json_patterns.ADDRESS}, one_address, "192.0.2.7")


def network(description: str) -> Any:
    """An address or a network, as it was given."""

    def read(value: str) -> str:
        read_network(value)
        return value

    return Parameter(description, {"type": "string", "pattern": json_patterns.NETWORK}, read, "192.0.2.0/24")


def _default(value: Any) -> dict[str, Any]:
    return {} if value is None else {"default": value}


PATTERN = "^[A-Za-z0-9_-]{1,1000}$"
_MOST = 2.0**53
"""Numbers below it are exact, and fit into a database."""
LIST = 3
"""The kind of `ListCursor`; 1 and 2 are those of access records (`api.queries.records.log_search`)."""


def cursor_text(content: list[Any]) -> str:
    """The text of a cursor; the first item is its kind."""
    return base64.urlsafe_b64encode(msgpack.packb(content)).decode().rstrip("=")


def cursor_content(text: str, kind: int, count: int) -> list[Any]:
    """What is in a cursor of this kind beside the kind: so many items. Raises `ValueError`."""
    try:
        content = msgpack.unpackb(base64.b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True))
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise foreign_cursor() from error
    if not isinstance(content, list) or len(content) != count + 1 or content[0] != kind:
        raise foreign_cursor()
    return content[1:]


def foreign_cursor() -> ValueError:
    """The error for a text that no response had as a cursor."""
    return ValueError("must be a cursor of an earlier response of this operation")


def checksum(filters: list[Any]) -> int:
    """Of the filters of a search, for its cursor."""
    return zlib.crc32(msgpack.packb(filters))


@dataclass(frozen=True, slots=True)
class ListCursor:
    """The place behind an entry of a sorted list: what it is sorted by (text or number), and its id.

    It does not depend on the entry, which may be deleted, or on the number of entries before it.
    """

    position: tuple[Any, str]
    filters: int
    """The checksum of filters and order."""

    def text(self) -> str:
        """As `next_cursor`."""
        return cursor_text([LIST, *self.position, self.filters])

    @classmethod
    def of(cls, text: str) -> ListCursor:
        """Raises `ValueError`."""
        value, identifier, filters = cursor_content(text, LIST, 3)
        if not (_is_value(value) and type(identifier) is str and type(filters) is int):
            raise foreign_cursor()
        return cls((value, identifier), filters)

    def position_in(self, filters: int) -> tuple[Any, str]:
        """The position in the list with these filters. Raises `Invalid` when it is of another list."""
        if self.filters != filters:
            raise Invalid("cursor", "is of a list with other filters or another order")
        return self.position


EXAMPLE = ListCursor(("office", "prx_0123456789abcdef"), 0).text()


def _is_value(value: Any) -> bool:
    return type(value) is str or (type(value) in (int, float) and abs(value) < _MOST)


ALL_NODES, THIS_NODE = "all", "self"


class AllNodes(Query):
    """Of an operation on what is on machines: in a fleet it asks all nodes (`api.objects.nodes.asked_nodes`)."""

    node: str | None = None


class OfNodes(AllNodes):
    """The same, with a parameter that says which nodes are asked."""

    node: str | None = text(
        "Only of this node of the fleet, by its name or id; `self` is the one that is asked, `all` is the default",
        THIS_NODE,
        128,
        1,
    )


class NodesAlone(OfNodes, ignore_others=True):
    """Of an operation that has no other parameter, and takes no notice of what else the query has."""
