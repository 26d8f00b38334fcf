"""Parameters in user names: `alice-session-7-country-de` is the account `alice`, with a session and a label.

They are part of the user name since that is all that every client can set. What stands behind the account is read from
left to right: `rotate` alone, any other known name with the value behind it. A name that is not known takes the text
behind it as its value unless that is a known name. The known names are `session`, `ttl`, `rotate`, the four usual
labels, the labels of the proxy's upstreams and what rules of its policies ask for.

Names of accounts may contain the separator. So the account is the longest beginning of the name that is an account and
is followed by parameters; an account of exactly the whole name comes before it. Of a name that no account begins, as on
a proxy without credentials, the account ends where the first known name begins.

Pure: it looks nothing up, but asks `exists`. All beginnings are asked for, whichever of them exist, so that the time
does not say which do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from actors.forwarding.protocols.commands import NO_PARAMS

SESSION, TTL, ROTATE = "session", "ttl", "rotate"
USUAL_LABELS: Final = frozenset(("country", "city", "asn", "isp"))
"""Names of labels that are known on every proxy: a country that no upstream is in must not be passed over."""

DEFAULT_TTL: Final = 600.0
TTL_MAX: Final = 86_400
ACCOUNT_MAX: Final = 128
VALUE_MAX: Final = 64
PARAMETERS_MAX: Final = 16
"""In one name; more are none at all."""

_SPECIAL: Final = re.compile(r"[^0-9A-Za-z._~+\-\x80-\U0010ffff]")
_SUFFIX: Final = "-session-"
_TOO_MANY: Final = f"there are more than {PARAMETERS_MAX} parameters"


class ParametersError(ValueError):
    """The text is not parameters; the message says what is wrong and what is allowed."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """What a user name says beside the account.

    `ttl` is seconds. `labels` are those that an upstream must have, `marks` what only rules of policies ask for.
    `unknown` are all others, as `name=value` or a name alone, percent-encoded; they have no effect.
    """

    session: str | None = None
    ttl: float = DEFAULT_TTL
    rotate: bool = False
    labels: Mapping[str, str] = field(default_factory=lambda: NO_PARAMS)
    unknown: tuple[str, ...] = ()
    marks: Mapping[str, str] = field(default_factory=lambda: NO_PARAMS)

    @property
    def asked(self) -> Mapping[str, str]:
        """What rules of policies may ask for."""
        if self is NO_PARAMETERS:
            return NO_PARAMS
        return {**self.labels, **self.marks, **({} if self.session is None else {SESSION: self.session})}

    @property
    def text(self) -> str:
        """As records show it: `session=7 ttl=600 country=de rotate`, without what is unknown. Empty for none.

        ASCII that is no letter, digit or `.`, `_`, `~`, `+`, `-` is percent-encoded: no value looks like a parameter.
        """
        words = [] if self.session is None else [f"{SESSION}={_encoded(self.session)}", f"{TTL}={self.ttl:g}"]
        words += [f"{name}={_encoded(value)}" for name, value in (*self.labels.items(), *self.marks.items())]
        return " ".join((*words, ROTATE) if self.rotate else words)

    @property
    def recorded(self) -> str:
        """`text`, and the unknown ones with a question mark in front."""
        return " ".join((self.text, *(f"?{each}" for each in self.unknown))).strip() if self.unknown else self.text


Exists = Callable[[str], bool]
"""Whether there is an account of this name."""

NO_PARAMETERS: Final = Parameters()


class Understood(NamedTuple):
    """How a user name is read. `problem` says why what stands behind an account is no parameters."""

    account: str
    parameters: Parameters = NO_PARAMETERS
    problem: str = ""


class UsernameReader(Protocol):
    """Reads user names.

    `reject_unknown`: unknown parameters are refused. `binds`: a session has its own upstream, by whatever policy
    upstreams are chosen.
    """

    @property
    def reject_unknown(self) -> bool: ...

    @property
    def binds(self) -> bool: ...

    def understood(self, username: str, exists: Exists | None, guess: bool = False, /) -> Understood:
        """See `ParameterNames`."""


class ParameterNames:
    """How the user names of one proxy are read: the separator, and which names of parameters are known."""

    binds = True

    def __init__(
        self,
        separator: str,
        labels: frozenset[str] = frozenset(),
        marks: frozenset[str] = frozenset(),
        reject_unknown: bool = False,
    ) -> None:
        """`labels` are those of upstreams, `marks` the names that rules ask for."""
        self.separator = separator
        self.reject_unknown = reject_unknown
        self._labels = USUAL_LABELS | labels
        self._marks = marks
        self._known = frozenset((SESSION, TTL, ROTATE)) | self._labels | marks

    def understood(self, username: str, exists: Exists | None, guess: bool = False) -> Understood:
        """The account in `username` and the parameters behind it; the whole name where there are none.

        `exists` says whether a name is an account. `guess`: without such an account, cut where the first known name
        begins; `exists` None: there are no accounts.
        """
        if self.separator not in username or (exists is not None and exists(username)):
            return Understood(username)
        cuts = self._cuts(username)
        found = [] if exists is None else [cut for cut in cuts if exists(username[:cut])]
        problem = ""
        for cut in found:
            try:
                return Understood(username[:cut], self.parse(username[cut + 1 :]))
            except ParametersError as error:
                problem = problem or f"{username[:cut]} is an account, but {error}"
        if guess and not found:
            return self._guessed(username, cuts)
        return Understood(username, problem=problem)

    def knowing(self, marks: frozenset[str]) -> ParameterNames:
        """The same, where rules ask for these as well."""
        return ParameterNames(self.separator, self._labels, self._marks | marks, self.reject_unknown)

    def parse(self, text: str) -> Parameters:
        """The parameters in `text`, which is what stands behind the account and a separator.

        Raises `ParametersError`.
        """
        words = text.split(self.separator, 2 * PARAMETERS_MAX)
        if len(words) > 2 * PARAMETERS_MAX:
            raise ParametersError(_TOO_MANY)
        pairs: dict[str, str] = {}
        unknown: list[str] = []
        position = 0
        while position < len(words):
            name = words[position]
            has_value = self._has_value(name, words[position + 1 : position + 2])
            value = words[position + 1] if has_value else ""
            position += 1 + has_value
            self._check(name, value, has_value, pairs)
            if name in self._known:
                pairs[name] = value
            else:
                unknown.append(f"{_encoded(name)}={_encoded(value)}" if has_value else _encoded(name))
        if len(pairs) + len(unknown) > PARAMETERS_MAX:
            raise ParametersError(_TOO_MANY)
        return self._made(pairs, tuple(unknown))

    def _has_value(self, name: str, following: list[str]) -> bool:
        if not following or name == ROTATE:
            return False
        return name in self._known or following[0] not in self._known

    def _check(self, name: str, value: str, has_value: bool, pairs: Mapping[str, str]) -> None:
        if not _is_plain(name):
            raise ParametersError(f"the name of a parameter has 1 to {VALUE_MAX} printable characters")
        if name in pairs:
            raise ParametersError(f"{name} is there twice")
        if name in self._known and name != ROTATE and not has_value:
            raise ParametersError(f"{name} has no value")
        if has_value and not _is_plain(value):
            raise ParametersError(f"the value of {name} has 1 to {VALUE_MAX} printable characters")

    def _made(self, pairs: dict[str, str], unknown: tuple[str, ...]) -> Parameters:
        session, ttl, rotate = pairs.pop(SESSION, None), pairs.pop(TTL, None), pairs.pop(ROTATE, None)
        return Parameters(
            session,
            DEFAULT_TTL if ttl is None else _seconds(ttl),
            rotate is not None,
            {name: value for name, value in pairs.items() if name in self._labels},
            unknown,
            {name: value for name, value in pairs.items() if name not in self._labels},
        )

    def _cuts(self, username: str) -> list[int]:
        """Where an account may end, from the right: each has a separator behind it, and few enough after that."""
        cuts: list[int] = []
        end = len(username)
        for _ in range(2 * PARAMETERS_MAX):
            end = username.rfind(self.separator, 0, end)
            if end <= 0:
                break
            if end <= ACCOUNT_MAX:
                cuts.append(end)
        return cuts

    def _guessed(self, username: str, cuts: list[int]) -> Understood:
        for cut in reversed(cuts):
            if username[cut + 1 :].partition(self.separator)[0] not in self._known:
                continue
            try:
                return Understood(username[:cut], self.parse(username[cut + 1 :]))
            except ParametersError:
                continue
        return Understood(username)

    def __repr__(self) -> str:
        return f"<ParameterNames with {self.separator!r}: {', '.join(sorted(self._known))}>"


class SessionSuffix:
    """Of a proxy without `username_params`: what stands behind the last `-session-` is the session, and no more."""

    reject_unknown = False
    binds = False

    def understood(self, username: str, exists: Exists | None, _guess: bool = False) -> Understood:
        """See `ParameterNames`. Whether what is in front of it is an account is not asked."""
        account, mark, word = username.rpartition(_SUFFIX)
        if not (mark and account and word) or (exists is not None and exists(username)):
            return Understood(username)
        return Understood(account, Parameters(session=word))


def _encoded(value: str) -> str:
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", value)


def _is_plain(text: str) -> bool:
    """No control characters, no half of a surrogate pair, and not too long."""
    return 0 < len(text) <= VALUE_MAX and text.isprintable()


def _seconds(text: str) -> float:
    if text.isascii() and text.isdigit() and len(text) <= len(str(TTL_MAX)) and 1 <= int(text) <= TTL_MAX:
        return float(text)
    raise ParametersError(f"ttl is seconds, 1 to {TTL_MAX}")
