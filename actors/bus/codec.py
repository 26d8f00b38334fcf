"""Messages to bytes and back: frozen dataclasses, msgpack, every field checked when it arrives.

A message class is registered with `@message`. On the wire a message is one msgpack array
`[version, kind, correlation, role, {field: value}]`. The version is one number for the whole protocol: processes of
one installation are of one release, so another version means a stranger on the socket. Two releases share the bus in
two cases only: an upgrade drains the forwarding actors of the release before
(`actors.supervision.handover`), so `Stop` and `Done` keep their fields; and the installed command requests
the upgrade from a running program of the release before, so `Upgrade`, `DescribeProgram` and `Program` keep theirs.
Everything else that one of them doesn't know is refused and logged.

Nodes of a fleet may be of two releases, and ask each other with the same messages (`api.cluster.links.link`): these are
read with `of_other_release`, which ignores fields that are not known, and has the default of those that are missing.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import IntEnum
from typing import Any, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgpack

PROTOCOL_VERSION = 1
_MOST = float(1 << 64)
_HEAD_MAX = 128
"""Bytes that hold the head of an envelope: all but the fields of its message."""


class ProtocolError(Exception):
    """Bytes on the bus that are not a message of this protocol; the text is the reason."""


class EnvelopeRole(IntEnum):
    """What an envelope is: a message without a reply, a request, or a reply."""

    TELL = 0
    ASK = 1
    REPLY = 2


@dataclass(frozen=True, slots=True)
class Envelope:
    """A message with its correlation: `correlation` is the number of the request, 0 without a reply."""

    message: Any
    correlation: int = 0
    role: EnvelopeRole = EnvelopeRole.TELL


T = TypeVar("T")
_Check = Callable[[Any], Any]
_KINDS: dict[str, type[Any]] = {}
_READERS: dict[tuple[type[Any], bool], dict[str, _Check]] = {}
_NAMES: dict[type[Any], tuple[str, ...]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=False)
def message(cls: type[T]) -> type[T]:
    """Register a class as a message: it becomes a frozen dataclass with slots, known by its class name."""
    frozen = dataclass(frozen=True, slots=True)(cls)
    if _KINDS.setdefault(frozen.__name__, frozen) is not frozen:
        raise ValueError(f"two messages are called {frozen.__name__}")
    return frozen


def known_messages() -> Mapping[str, type[Any]]:
    """All registered message classes by name."""
    return types.MappingProxyType(_KINDS)


def encode(envelope: Envelope) -> bytes:
    """One frame for `envelope`."""
    content = envelope.message
    return _packed([PROTOCOL_VERSION, type(content).__name__, envelope.correlation, int(envelope.role), content])


def decode(frame: bytes, of_other_release: bool = False) -> Envelope:
    """The envelope in `frame`. Raises `ProtocolError` for everything that `encode` would not have written.

    With `of_other_release` a message may have further fields, and lack those with defaults. No number of it is none, or
    too large for a sum: one from a stolen node would be in a response about all of them.
    """
    try:
        parts = msgpack.unpackb(frame, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"not msgpack: {error}") from error
    if not isinstance(parts, list) or len(parts) != 5:
        raise ProtocolError("not an envelope of five parts")
    version, kind, correlation, role, body = parts
    if version != PROTOCOL_VERSION:
        raise ProtocolError(f"protocol version {version!r}, not {PROTOCOL_VERSION}")
    cls = _KINDS.get(kind) if isinstance(kind, str) else None
    if cls is None:
        raise ProtocolError(f"unknown message {kind!r}")
    if not isinstance(correlation, int) or role not in (0, 1, 2):
        raise ProtocolError(f"{kind}: bad correlation or role")
    if of_other_release:
        _require_finite(body)
    return Envelope(_build(cls, body, of_other_release), correlation, EnvelopeRole(role))


def pack(value: Any) -> bytes:
    """A value of a message class as bytes, for a field of another message, which can be passed on unread."""
    return _packed(value)


def unpack(kind: type[T], packed: bytes) -> T:
    """The value of this message class that `pack` made the bytes of. Raises `ProtocolError`."""
    try:
        body = msgpack.unpackb(packed, strict_map_key=True)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise ProtocolError(f"not msgpack: {error}") from error
    built: T = _build(kind, body)
    return built


def kind_and_role(frame: bytes) -> tuple[str, EnvelopeRole] | None:
    """The name of the message in `frame` and its role, without the rest of it; None for what is no envelope."""
    unpacker = msgpack.Unpacker(max_buffer_size=_HEAD_MAX)
    unpacker.feed(frame[:_HEAD_MAX])
    try:
        unpacker.read_array_header()
        _version, kind, _correlation, role = (unpacker.unpack() for _ in range(4))
        return (kind, EnvelopeRole(role)) if isinstance(kind, str) else None
    except (ValueError, msgpack.exceptions.UnpackException):
        return None


def _require_finite(body: Any) -> None:
    left = [body]
    while left:
        value = left.pop()
        if isinstance(value, float) and not abs(value) < _MOST:
            raise ProtocolError(f"{value} is no number that a node has")
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)


def _packed(value: Any) -> bytes:
    """`value` with messages in it as maps, and tuples as lists."""
    packed: bytes = msgpack.packb(value, default=_fields)
    return packed


def _fields(value: Any) -> dict[str, Any]:
    """What msgpack gets in place of a message. Raises `TypeError` for anything else."""
    kind = type(value)
    names = _NAMES.get(kind)
    if names is None:
        names = _NAMES[kind] = tuple(field.name for field in fields(kind))
    return {name: getattr(value, name) for name in names}


def _build(cls: type[Any], body: Any, lenient: bool = False) -> Any:
    readers = _READERS.get((cls, lenient))
    if readers is None:
        hints = get_type_hints(cls).items()
        readers = _READERS[cls, lenient] = {name: _reader(hint, lenient) for name, hint in hints}
    if not isinstance(body, dict) or (not lenient and body.keys() != readers.keys()):
        raise ProtocolError(f"{cls.__name__}: fields are not {', '.join(readers) or 'empty'}")
    try:
        if lenient:
            return cls(**{name: read(body[name]) for name, read in readers.items() if name in body})
        return cls(**{name: read(body[name]) for name, read in readers.items()})
    except (TypeError, ValueError) as error:
        raise ProtocolError(f"{cls.__name__}: {error}") from error


def _reader(hint: Any, lenient: bool) -> _Check:
    """A function that checks a decoded value against `hint` and converts it to its Python type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _union_reader(args, lenient)
    if origin is tuple:
        return _tuple_reader(args, lenient)
    if origin is dict:
        return _dict_reader(args, lenient)
    if isinstance(hint, type) and is_dataclass(hint):
        return lambda value: _build(hint, value, lenient)
    if hint is float:
        return _exactly((float, int))
    return _exactly((hint,))


def _exactly(allowed: tuple[type[Any], ...]) -> _Check:
    def read(value: Any) -> Any:
        if type(value) not in allowed:
            raise TypeError(f"{value!r} is not {allowed[0].__name__}")
        return value

    return read


def _union_reader(args: tuple[Any, ...], lenient: bool) -> _Check:
    present = [arg for arg in args if arg is not type(None)]
    if len(present) != 1:
        raise TypeError("a message field is one type or that type and None")
    inner = _reader(present[0], lenient)
    return lambda value: None if value is None else inner(value)


def _tuple_reader(args: tuple[Any, ...], lenient: bool) -> _Check:
    if len(args) == 2 and args[1] is Ellipsis:
        item = _reader(args[0], lenient)
        return lambda value: tuple(item(each) for each in _a_list(value))
    items = [_reader(arg, lenient) for arg in args]

    def read(value: Any) -> Any:
        if len(_a_list(value)) != len(items):
            raise ValueError(f"{len(items)} items wanted")
        return tuple(check(each) for check, each in zip(items, value, strict=True))

    return read


def _dict_reader(args: tuple[Any, ...], lenient: bool) -> _Check:
    key, item = _reader(args[0], lenient), _reader(args[1], lenient)

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r} is not a map")
        return {key(name): item(each) for name, each in value.items()}

    return read


def _a_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value
