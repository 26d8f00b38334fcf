"""The codec: every message survives the way there and back, and everything else is refused."""

from __future__ import annotations

import types
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.bus.codec import PROTOCOL_VERSION, Envelope, ProtocolError, Role, decode, encode, known_messages
from actors.bus.messages import common

ALL = sorted(known_messages())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def values(hint: Any) -> st.SearchStrategy[Any]:
    """Values of one field type."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is Any:
        return JSON
    if origin in (Union, types.UnionType):
        return st.one_of([st.none() if arg is type(None) else values(arg) for arg in args])
    if origin is tuple and args[-1] is Ellipsis:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is tuple:
        return st.tuples(*(values(arg) for arg in args))
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    plain = {
        int: st.integers(-(2**63), 2**64 - 1),
        float: st.floats(allow_nan=False),
        str: st.text(max_size=8),
        bool: st.booleans(),
    }
    return plain[hint] if hint in plain else any_of(hint)


def any_of(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Messages of one class."""
    return st.builds(cls, **{name: values(hint) for name, hint in get_type_hints(cls).items()})


@pytest.mark.parametrize("kind", ALL)
def test_every_message_comes_out_as_it_went_in(kind: str) -> None:
    @settings(max_examples=25, deadline=None, database=None)
    @given(any_of(known_messages()[kind]), st.integers(0, 2**40), st.sampled_from(Role))
    def there_and_back(message: Any, correlation: int, role: Role) -> None:
        sent = Envelope(message, correlation, role)
        assert decode(encode(sent)) == sent

    there_and_back()


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=60))
def test_random_bytes_are_refused(frame: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode(frame)


@settings(max_examples=300, deadline=None, database=None)
@given(st.lists(JSON, min_size=5, max_size=5))
def test_random_envelopes_are_refused(parts: list[Any]) -> None:
    with pytest.raises(ProtocolError):
        decode(msgpack.packb(parts))


HELLO = {"instance": 1, "pid": 2}


@pytest.mark.parametrize(
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
