"""One check of a password against bcrypt, and how long refusals take.

The time of a refusal must not disclose whether a name is known, or what kind of hash it has. All that is cheaper than a
hash of our own is made as dear by further rounds. What is dearer is a hash from elsewhere, whose cost others have
chosen: while the table of accounts has such hashes, refusals of all other names wait for as long as the dearest would
take. That costs no processor, but it follows the load less closely than rounds do.
"""

from __future__ import annotations

import base64
import hashlib
import time
from typing import Final, NamedTuple

WEIGHT: Final = 0.2
"""Of the last check in the average time of a round."""

_PASSWORD_MAX: Final = 72
"""Bytes that bcrypt reads."""


class Checked(NamedTuple):
    """The result of a check, the rounds that it took, and its seconds. `renewable`: the hash is from elsewhere, and
    one of our own may take its place."""

    matches: bool
    rounds: int
    seconds: float
    renewable: bool = False


def prehash(password: bytes) -> bytes:
    """What bcrypt gets: a digest, since bcrypt passes over what is behind byte 72 and stops at NUL."""
    return base64.b64encode(hashlib.sha256(password).digest())


def check(password: bytes, stored: bytes | None) -> Checked:
    """Whether `stored` is a hash of the password. Without one a check is made all the same, as dear as any."""
    from config import passwords  # which loads bcrypt: only proxies with credentials pay for it

    began = time.perf_counter()
    against = stored.decode("ascii") if stored else passwords.unknown_hash()
    matches, rounds = _matches(password, against), passwords.rounds_of(against)
    if not matches:
        rounds += passwords.spend_rounds((1 << passwords.COST) - rounds)
    # Of a longer password bcrypt has read a part alone: what is behind it may be another one's.
    renewable = matches and passwords.is_foreign(against) and len(password) <= _PASSWORD_MAX
    return Checked(matches, rounds, time.perf_counter() - began, renewable)


def hash_anew(password: bytes) -> bytes:
    """A hash of our own."""
    import bcrypt

    from config.passwords import COST

    return bcrypt.hashpw(prehash(password), bcrypt.gensalt(COST))


class RefusalTime:
    """How long refusals wait, by what rounds of bcrypt have taken lately."""

    def __init__(self) -> None:
        self._round = 0.0

    def note(self, checked: Checked) -> None:
        """A password was wrong."""
        if checked.rounds:
            seconds = checked.seconds / checked.rounds
            self._round += (seconds - self._round) * (WEIGHT if self._round else 1.0)

    def wait(self, checked: Checked, most_rounds: int) -> float:
        """Seconds after which the refusal has taken as long as one that costs `most_rounds`."""
        return max(0, most_rounds - checked.rounds) * self._round


def _matches(password: bytes, stored: str) -> bool:
    import bcrypt

    from config.passwords import FOREIGN

    hashed = stored.removeprefix(FOREIGN)
    forms = [prehash(password)] if hashed == stored else [password[:_PASSWORD_MAX], prehash(password)]
    try:
        return any(bcrypt.checkpw(form, hashed.encode("ascii")) for form in forms)
    except ValueError:
        return False  # no hash is stored
