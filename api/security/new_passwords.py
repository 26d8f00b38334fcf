"""Passwords that are given to users on the machine itself: at the first start and by the command line."""

from __future__ import annotations

import secrets

from api.security.users import ADMINISTRATOR
from config.weak_passwords import LONGEST, SHORTEST, weakness


class WeakPassword(ValueError):
    """The password that the operator chose is not 8 to 128 characters long, or is guessed at once."""


def new_password() -> str:
    """A random password of 120 bits."""
    return secrets.token_urlsafe(15)


def check_strength(password: str, username: str = ADMINISTRATOR) -> str:
    """`password`, if it may be the one of `username`; else `WeakPassword`."""
    if not SHORTEST <= len(password) <= LONGEST:
        raise WeakPassword(f"the password must have {SHORTEST} to {LONGEST} characters")
    if (why := weakness(password, username)) is not None:
        raise WeakPassword(f"the password {why}")
    return password
