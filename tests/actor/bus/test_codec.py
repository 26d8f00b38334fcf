"""The codec: every message survives the way there and back, and everything else is refused."""

from __future__ import annotations

import types
from random import Random
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.bus import permissions
from actors.bus.codec import PROTOCOL_VERSION, Envelope, EnvelopeRole, ProtocolError, decode, encode, known_messages
from actors.bus.messages import common
from tests.kit.tables import table

assert permissions.__name__  # its import registers the messages
ALL = sorted(known_messages())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


EXAMPLES = 8
TEXTS = ("", "a", "ä\U0001f600", "\0\n", "x" * 300)
INTEGERS = (0, 1, -1, 127, 2**31, -(2**63), 2**64 - 1)
FLOATS = (0.0, -1.5, 1e300, float("inf"), float("-inf"))


def value(hint: Any, chance: Random) -> Any:
    """A value of one field type, of those at its edges."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return chance.choice((None, True, 7, "a", [1, "b"], {"c": [None]}))
    if hint is type(None):
        return None
    if origin in (Union, types.UnionType):
        return value(chance.choice(args), chance)
    if origin is tuple and args[-1] is Ellipsis:
        return tuple(value(args[0], chance) for _ in range(chance.randrange(4)))
    if origin is tuple:
        return tuple(value(arg, chance) for arg in args)
    if origin is dict:
        return {value(args[0], chance): value(args[1], chance) for _ in range(chance.randrange(4))}
    plain: dict[Any, tuple[Any, ...]] = {int: INTEGERS, float: FLOATS, str: TEXTS, bool: (False, True)}
    return chance.choice(plain[hint]) if hint in plain else message_of(hint, chance)


def message_of(cls: type[Any], chance: Random) -> Any:
    return cls(**{name: value(hint, chance) for name, hint in get_type_hints(cls).items()})


@table("kind", ALL)
def test_every_message_comes_out_as_it_went_in(kind: str) -> None:
    chance = Random(kind)
    for role in (*EnvelopeRole, *chance.choices(list(EnvelopeRole), k=EXAMPLES - len(EnvelopeRole))):
        sent = Envelope(message_of(known_messages()[kind], chance), chance.randrange(2**40), role)
        assert decode(encode(sent)) == sent


@settings(max_examples=50, deadline=None, database=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(frame)


@settings(max_examples=50, deadline=None, database=None)
@given(st.lists(JSON, min_size=5, max_size=5))
def test_random_envelopes_are_refused(parts: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(parts))


HELLO = {"instance": 1, "pid": 2}


@table(
    ("parts", "why"),
    [
        ([PROTOCOL_VERSION + 1, "Hello", 0, 0, HELLO], "protocol version"),
        ([PROTOCOL_VERSION, "Helo", 0, 0, HELLO], "unknown message 'Helo'"),
        ([PROTOCOL_VERSION, ["Hello"], 0, 0, HELLO], "unknown message"),
        ([PROTOCOL_VERSION, "Hello", "0", 0, HELLO], "bad correlation"),
        ([PROTOCOL_VERSION, "Hello", 0, 3, HELLO], "bad correlation or role"),
        ([PROTOCOL_VERSION, "Hello", 0, [], HELLO], "bad correlation or role"),
        ([PROTOCOL_VERSION, "Hello", 0, 0, {"instance": 1}], "fields are not"),
        ([PROTOCOL_VERSION, "Hello", 0, 0, {**HELLO, "more": 1}], "fields are not"),
        ([PROTOCOL_VERSION, "Hello", 0, 0, {"instance": "1", "pid": 2}], "is not int"),
        ([PROTOCOL_VERSION, "Hello", 0, 0, {"instance": True, "pid": 2}], "is not int"),
        ([PROTOCOL_VERSION, "Hello", 0, 0, []], "fields are not"),
        ([PROTOCOL_VERSION, "Hello", 0, 0], "five parts"),
        ({"a": 1}, "five parts"),
    ],
)
def test_a_wrong_envelope_is_refused_with_what_is_wrong(parts: Any, why: str) -> None:
    with pytest.raises(ProtocolError, match=why):
        decode(msgpack.packb(parts))


def test_a_frame_with_something_behind_it_is_refused() -> None:
    with pytest.raises(ProtocolError, match="not msgpack"):
        decode(encode(Envelope(common.Done())) + b"\x00")


def test_every_message_says_in_its_docstring_who_sends_it() -> None:
    without = [
        name
        for name, cls in known_messages().items()
        if "→" not in (cls.__doc__ or "") and "value" not in (cls.__doc__ or "").lower() and "totals" not in cls.__doc__
    ]
    assert without == []
