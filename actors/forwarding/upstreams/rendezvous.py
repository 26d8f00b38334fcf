"""Rendezvous hashing in two steps, for lists that are too long to score each upstream for every new key.

An upstream is in one of `GROUPS` groups by a hash of what it is. A key goes to the group with the highest score for
the weights of its upstreams, and to the upstream with the highest score there: with 1,000 upstreams that is 80 scores.
A changed list moves the keys of the upstreams that have changed, and as many again, since their groups weigh
differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from actors.forwarding.upstream import AnyUpstream, identity
from actors.forwarding.upstreams.balancing import Usable, score

GROUPS: Final = 64


class _Marked(NamedTuple):
    mark: bytes
    upstream: AnyUpstream


class _Group(NamedTuple):
    mark: bytes
    weight: int
    members: list[_Marked]


class Rendezvous:
    """The order in which a key has the upstreams of a list."""

    def __init__(self, upstreams: Sequence[AnyUpstream]) -> None:
        groups: dict[int, list[_Marked]] = {}
        for each in upstreams:
            mark = repr(identity(each.spec)).encode()
            group = hashlib.blake2b(mark, digest_size=1).digest()[0] % GROUPS
            groups.setdefault(group, []).append(_Marked(mark, each))
        self._groups = [
            _Group(b"group %d" % number, sum(each.upstream.spec.weight for each in members), members)
            for number, members in groups.items()
        ]

    def first(self, key: bytes, usable: Usable = lambda _each: True) -> AnyUpstream | None:
        """The first upstream of the key that is usable."""
        return next((each for each in self._ordered(key) if usable(each)), None)

    def _ordered(self, key: bytes) -> Iterator[AnyUpstream]:
        for group in sorted(self._groups, key=lambda each: -score(key, each.mark, each.weight)):
            for member in sorted(group.members, key=lambda each: -score(key, each.mark, each.upstream.spec.weight)):
                yield member.upstream

    def __repr__(self) -> str:
        return f"<Rendezvous over {sum(len(each.members) for each in self._groups)} upstreams>"
