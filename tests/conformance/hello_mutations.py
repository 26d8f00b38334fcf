"""Hellos that are nearly right: real ones with fields, lengths, extensions, records and single bits changed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from tests.kit.client_hellos import (
    ALPN,
    PRE_SHARED_KEY,
    SERVER_NAME,
    SUPPORTED_VERSIONS,
    Hello,
    protocols,
    record,
    records,
    samples,
    server_name,
    taken_apart,
    vector,
    versions,
)

_NAME = b"\0" + vector(b"b.example", 2)
VALUES: dict[int, list[bytes]] = {
    SERVER_NAME: [
        *map(
            server_name,
            (b"b.example", b"B.Example.", b"", b".", b"b\0.example", b"b\xff", b"a b\\", b"b" * 255, b"b" * 256),
        ),
        server_name(b"b.example", 1),
        vector(_NAME + _NAME, 2),
        vector(_NAME + b"\1" + vector(b"c.example", 2), 2),
        vector(b"\1" + vector(b"c.example", 2) + _NAME, 2),
        server_name(b"b.example") + b"\0",
        vector(_NAME[:-1], 2),
        vector(_NAME, 2)[:-1],
        b"\0\0",
        b"\0",
        b"",
    ],
    ALPN: [
        protocols(b"h2"),
        protocols(b"http/1.1", b"h2"),
        protocols(),
        protocols(b""),
        protocols(b"h2", b""),
        protocols(b"x" * 255),
        protocols(b"h2") + b"\0",
        vector(b"\x03h2", 2),
        b"",
    ],
    SUPPORTED_VERSIONS: [
        versions(0x0304),
        versions(0x0303),
        versions(0x0301, 0x0302),
        versions(0x1A1A, 0x0304, 0x0303),
        versions(0x1A1A),
        versions(0x0300),
        versions(),
        versions(0x0304) + b"\0",
        vector(b"\x03\x04\x03", 1),
        b"",
    ],
    PRE_SHARED_KEY: [b"", b"\0\0\0\0"],
    0x1A1A: [b"", b"\0"],
    21: [b"", bytes(300)],
    35: [b"", bytes(40)],
    65281: [b"\0", b"\1\0"],
    13172: [b""],
    45: [b"\1\1", b""],
    10: [b"\0\2\0\x1d", b"\0\1\0"],
}
"""What is put in, by type of extension."""


def _with_extension(hello: Hello, random: Random) -> Hello:
    kind = random.choice(list(VALUES))
    extensions = list(hello.extensions or ())
    extensions.insert(random.randint(0, len(extensions)), (kind, random.choice(VALUES[kind])))
    return replace(hello, extensions=tuple(extensions))


def _with_another_value(hello: Hello, random: Random) -> Hello:
    kind = random.choice(list(VALUES))
    rest = [each for each in hello.extensions or () if each[0] != kind]
    return _with_these(replace(hello, extensions=tuple(rest)), random, (kind, random.choice(VALUES[kind])))


def _with_these(hello: Hello, random: Random, *more: tuple[int, bytes]) -> Hello:
    extensions = [*(hello.extensions or ()), *more]
    random.shuffle(extensions)
    if random.random() < 0.8:
        extensions.sort(key=lambda each: each[0] == PRE_SHARED_KEY)
    return replace(hello, extensions=tuple(extensions))


def _with_a_second(hello: Hello, random: Random) -> Hello:
    return hello.with_(random.choice(hello.extensions)) if hello.extensions else hello


def _without_one(hello: Hello, random: Random) -> Hello:
    kinds = [kind for kind, _ in hello.extensions or ()]
    return hello.only(set(kinds) - {random.choice(kinds)}) if kinds else hello


def _with_other_fields(hello: Hello, random: Random) -> Hello:
    others = (
        replace(hello, version=random.choice((0, 0x0200, 0x0300, 0x0301, 0x0302, 0x0303, 0x0304, 0x03FF, 0xFFFF))),
        replace(hello, session=bytes(random.choice((0, 1, 32, 33, 255)))),
        replace(hello, ciphers=random.choice((b"", b"\x13", b"\x13\x01", b"\0\xff", b"\x56\0", bytes(40)))),
        replace(hello, compressions=random.choice((b"", b"\0", b"\1", b"\1\0", b"\0\1"))),
        replace(hello, extensions=None),
    )
    return random.choice(others)


CHANGES: tuple[Callable[[Hello, Random], Hello], ...] = (
    _with_extension,
    _with_another_value,
    _with_these,
    _with_a_second,
    _without_one,
    _with_other_fields,
)


def _flipped(message: bytes, random: Random) -> bytes:
    """With one to three octets changed, rather at the beginning, where the lengths are."""
    octets = bytearray(message)
    for _ in range(random.choice((1, 1, 2, 3))):
        at = min(random.randrange(len(octets)), random.randrange(len(octets)))
        octets[at] = random.choice(
            (octets[at] ^ 1 << random.randrange(8), (octets[at] + 1) % 256, 0, random.randrange(256))
        )
    return bytes(octets)


def _resized(message: bytes, random: Random) -> bytes:
    """Cut off or longer, but with a length that says so."""
    size = random.randint(0, len(message) - 4)
    body = random.choice((message[4 : 4 + size], message[4:] + bytes(random.randint(1, 9))))
    return message[:1] + vector(body, 3)


def _in_records(message: bytes, random: Random) -> bytes:
    size = random.choice((1, 2, 5, 9, 100, len(message) - 1, len(message) // 2 + 1, 1 << 14))
    pieces = [message[at : at + size] for at in range(0, len(message), size)][:400]
    stream = [record(piece, version=random.choice((0x0301, 0x0301, 0x0303, 0x03FF))) for piece in pieces]
    if random.random() < 0.1:
        others = [
            record(b""),
            record(b"\1\0", 21),
            record(b"\2\x28", 21),
            record(b"\1", 20),
            record(b"x", 23),
            record(b"x", 99),
        ]
        stream.insert(random.randint(0, len(stream)), random.choice(others))
    return b"".join(stream)


def mutated(random: Random) -> bytes:
    """A client's first octets."""
    message = random.choice(samples()).message
    if random.random() < 0.6:
        hello = taken_apart(message)
        for _ in range(random.choice((1, 1, 2, 3))):
            hello = random.choice(CHANGES)(hello, random)
        message = hello.message()
    if random.random() < 0.4:
        message = _flipped(message, random)
    if random.random() < 0.1:
        message = _resized(message, random)
    stream = _in_records(message, random) if random.random() < 0.4 else records(message)
    if random.random() < 0.05:
        stream = _flipped(stream, random)
    if random.random() < 0.05:
        stream = stream[: random.randrange(len(stream))]
    if random.random() < 0.05:
        stream += random.choice((records(message), record(b"x", 23), b"x"))
    return stream
