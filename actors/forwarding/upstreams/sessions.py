"""Which upstream the session of a user name has, and what `rotate` takes.

A session has its home: the first upstream of its key (`Rendezvous`), whatever the policy, so that all proxies of a pool
choose the same one without a message; or where it began, if that one could not be used then; or what `rotate` took; or
its stand-in, once its home is removed. That holds for its `ttl`, counted from its last request or tunnel on, at all
workers and also through sleep, restart and crash (`actors.state.choices`). Upstreams that are added take no session
from its home.

It leaves its home only while that is down, banned or removed. Then it has a stand-in, which it leaves for the same
reasons alone, and it is back as soon as its home may be used again. A cool-down is no reason: it fails rather than
appear at its target with another address. Until its second request it may still have another one, since no target
has seen it.

Rendezvous hashing in two steps, for lists that are too long to score each upstream for every new key. An upstream is in
one of `GROUPS` groups by a hash of what it is. A key goes to the group with the highest score for the weights of its
upstreams, and to the upstream with the highest score there: with 1,000 upstreams that is 80 scores. A changed list
moves the keys of the upstreams that have changed, and as many again, since their groups weigh differently.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from actors.bounded import keep
from actors.forwarding.access.username_parameters import Parameters
from actors.forwarding.upstreams.balancing import RoundRobin, Usable, score
from actors.pools.state import identity
from actors.pools.upstream import Upstream
from actors.state.choices import SharedChoices

GROUPS: Final = 64


class _Marked(NamedTuple):
    mark: bytes
    upstream: Upstream


class _Group(NamedTuple):
    mark: bytes
    weight: int
    members: list[_Marked]


class Rendezvous:
    """The order in which a key has the upstreams of a list."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        groups: dict[int, list[_Marked]] = {}
        for each in upstreams:
            mark = repr(identity(each.spec)).encode()
            group = hashlib.blake2b(mark, digest_size=1).digest()[0] % GROUPS
            groups.setdefault(group, []).append(_Marked(mark, each))
        self._groups = [
            _Group(b"group %d" % number, sum(each.upstream.spec.weight for each in members), members)
            for number, members in groups.items()
        ]

    def first(self, key: bytes, usable: Usable = lambda _each: True) -> Upstream | None:
        """The first upstream of the key that is usable."""
        return next((each for each in self._ordered(key) if usable(each)), None)

    def _ordered(self, key: bytes) -> Iterator[Upstream]:
        for group in sorted(self._groups, key=lambda each: -score(key, each.mark, each.weight)):
            for member in sorted(group.members, key=lambda each: -score(key, each.mark, each.upstream.spec.weight)):
                yield member.upstream

    def __repr__(self) -> str:
        return f"<Rendezvous over {sum(len(each.members) for each in self._groups)} upstreams>"


CACHED_KEYS: Final = 4_096
LAST_TTL: Final = 86_400.0
"""Seconds for which it is known what `rotate` has taken last."""
CACHED_LABELS: Final = 128
"""Combinations of labels whose upstreams are remembered."""

Labels = tuple[tuple[str, str], ...]


class _Candidates(NamedTuple):
    """The upstreams with some labels: how sessions are spread over them, and the turns that `rotate` takes."""

    order: Rendezvous
    rotation: RoundRobin


class UpstreamSessions:
    """The sessions over one list of upstreams. A changed list takes over what was kept for the one before."""

    def __init__(
        self, upstreams: Sequence[Upstream], choices: SharedChoices, previous: UpstreamSessions | None = None
    ) -> None:
        """`choices` has where sessions are, and what `rotate` has taken, by `Upstream.number`."""
        self.choices = choices
        self._upstreams = upstreams
        self._by_number = {each.number: each for each in upstreams}
        self._by_labels: dict[Labels, _Candidates] = {}
        self._first: dict[bytes, Upstream] = {} if previous is None else self._still_there(previous._first)
        """The homes of sessions that are where their key has them, or had them before other upstreams came."""
        self._new: dict[bytes, None] = {} if previous is None else previous._new
        """Those that have had no second request yet."""

    def _still_there(self, homes: Mapping[bytes, Upstream]) -> dict[bytes, Upstream]:
        now = ((digest, self._by_number.get(home.number)) for digest, home in homes.items())
        return {digest: home for digest, home in now if home is not None}

    def choose(
        self,
        key: str,
        parameters: Parameters,
        matches: Usable,
        usable: Usable,
        now: float,
        tried: Sequence[Upstream] = (),
    ) -> Upstream | None:
        """The upstream for a request with a session or `rotate`; None without a usable one.

        `key` stands for the account, and for the session if there is one; `matches` says which upstreams the parameters
        allow at all, `usable` which of them may be used and were not `tried` for this request.
        """
        digest = _digest(key, parameters)
        candidates = self._candidates(parameters, matches)
        if parameters.rotate and (parameters.session is not None or not tried):
            return self._rotate(digest, parameters, candidates, usable, now)
        if parameters.session is None:
            return self._keep_last(digest, candidates.rotation.choose("", usable), now)
        if not tried:
            self._new.pop(digest, None)
        home = self._home(digest, parameters, candidates, matches, now)
        if home is None or (digest in self._new and usable(home)):
            return home
        if digest in self._new:
            chosen = candidates.order.first(digest, usable)
            return None if chosen is None else self._bind(digest, chosen, parameters, now)

        def serves(upstream: Upstream) -> bool:
            stays = upstream not in tried and matches(upstream) and upstream.serves_sessions(now)
            return stays or usable(upstream)

        if home.holds_sessions(now) or usable(home):
            return home if serves(home) else None
        stand_in = self._present(_of_stand_in(digest), now)
        if stand_in is not None and matches(stand_in) and stand_in.holds_sessions(now):
            return self._bind(_of_stand_in(digest), stand_in, parameters, now) if serves(stand_in) else None
        chosen = candidates.order.first(digest, usable)
        return None if chosen is None else self._bind(_of_stand_in(digest), chosen, parameters, now)

    def peek(self, key: str, parameters: Parameters, matches: Usable, usable: Usable, now: float) -> Upstream | None:
        """What `choose` would return for a session, without any effect."""
        digest = _digest(key, parameters)
        candidates = self._candidates(parameters, matches)
        for place in (self._known_home(digest, matches, now), self._present(_of_stand_in(digest), now)):
            if place is not None and matches(place) and (place.holds_sessions(now) or usable(place)):
                return place if usable(place) or place.serves_sessions(now) else None
        return candidates.order.first(digest, usable)

    def stays(self, key: str, parameters: Parameters, matches: Usable, now: float) -> bool:
        """Whether a session is not to be moved, so that no other upstream is asked for what one has failed to do."""
        digest = _digest(key, parameters)
        if parameters.session is None or parameters.rotate or digest in self._new:
            return False
        places = (self._known_home(digest, matches, now), self._present(_of_stand_in(digest), now))
        return any(each is not None and matches(each) and each.holds_sessions(now) for each in places)

    def _candidates(self, parameters: Parameters, matches: Usable) -> _Candidates:
        """The upstreams that match."""
        labels = tuple(sorted(parameters.labels.items()))
        found = self._by_labels.get(labels)
        if found is None:
            matching = [each for each in self._upstreams if matches(each)]
            found = _Candidates(Rendezvous(matching), RoundRobin(matching))
            keep(self._by_labels, labels, found, CACHED_LABELS)
        return found

    def _known_home(self, digest: bytes, matches: Usable, now: float) -> Upstream | None:
        for home in (self._present(digest, now), self._first.get(digest)):
            if home is not None and matches(home):
                return home
        return None

    def _home(
        self, digest: bytes, parameters: Parameters, candidates: _Candidates, matches: Usable, now: float
    ) -> Upstream | None:
        """The upstream of a session, usable or not."""
        bound = self._present(digest, now)
        if bound is not None and matches(bound):
            return self._bind(digest, bound, parameters, now)
        home = self._first.get(digest)
        if home is None or not matches(home):
            stand_in = self._present(_of_stand_in(digest), now)
            if stand_in is not None and matches(stand_in):  # its home was removed
                return self._bind(digest, stand_in, parameters, now)
            home = candidates.order.first(digest)
            if home is not None:
                keep(self._first, digest, home, CACHED_KEYS)
                keep(self._new, digest, None, CACHED_KEYS)
        return home if home is None else self._bind(digest, home, parameters, now)

    def _rotate(
        self, digest: bytes, parameters: Parameters, candidates: _Candidates, usable: Usable, now: float
    ) -> Upstream | None:
        """In turn by the weights, and not the present one unless there is no other."""
        if parameters.session is None:
            present = self._present(digest, now)
        else:
            present = self._present(digest, now) or candidates.order.first(digest)
        chosen = candidates.rotation.choose("", lambda each: each is not present and usable(each))
        chosen = chosen or candidates.rotation.choose("", usable)
        if parameters.session is None or chosen is None:
            return self._keep_last(digest, chosen, now)
        return self._bind(digest, chosen, parameters, now)

    def _present(self, digest: bytes, now: float) -> Upstream | None:
        """The upstream that a session has, or that `rotate` has taken."""
        number, until = self.choices.choice(digest)
        return self._by_number.get(number) if until > now else None

    def _bind(self, digest: bytes, upstream: Upstream, parameters: Parameters, now: float) -> Upstream:
        self.choices.keep(digest, upstream.number, now + parameters.ttl)
        return upstream

    def _keep_last(self, digest: bytes, upstream: Upstream | None, now: float) -> Upstream | None:
        if upstream is not None:
            self.choices.keep(digest, upstream.number, now + LAST_TTL)
        return upstream

    def __repr__(self) -> str:
        return f"<UpstreamSessions over {len(self._upstreams)} upstreams>"


def _of_stand_in(digest: bytes) -> bytes:
    """Under which the stand-in of a session is kept."""
    return digest[::-1]


def _digest(key: str, parameters: Parameters) -> bytes:
    """Of bounded size, and the same in all processes. Other labels are another session."""
    parts = (key, *(f"{name}={value}" for name, value in sorted(parameters.labels.items())))
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape"), digest_size=16).digest()
