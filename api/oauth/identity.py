"""The identity of a person as a provider states it, and its e-mail addresses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

LONGEST_SUBJECT = 255


class IdentityRefused(Exception):
    """The identity is not proven, or may not sign in; the text is meant for the person."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A person at a provider. `issuer` and `subject` identify them for good; everything else may change.

    `email` is set only when the provider has verified it. `claims` are all claims.
    """

    provider: str
    issuer: str
    subject: str
    email: str | None
    claims: Mapping[str, Any]


def subject_of(value: Any) -> str | None:
    """An identifier that a provider gave, as text; None when it is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return value if isinstance(value, str) and 0 < len(value) <= LONGEST_SUBJECT else None


def address_of(value: Any) -> str | None:
    """An e-mail address in its normal form; None when it is none."""
    if not isinstance(value, str):
        return None
    from email_validator import EmailNotValidError, validate_email  # 40 ms of a start

    try:
        return validate_email(value, check_deliverability=False, test_environment=True).normalized
    except EmailNotValidError:
        return None


def verified_address(claims: Mapping[str, Any]) -> str | None:
    """The e-mail address in OpenID Connect claims, if they say that it is verified.

    Microsoft says so in `xms_edov` alone; there an address without it may be anything that an administrator of some
    directory has written.
    """
    verified = _is_true(claims.get("email_verified")) or _is_true(claims.get("xms_edov"), "1", 1)
    return address_of(claims.get("email")) if verified else None


def _is_true(value: Any, *more: Any) -> bool:
    """True, or `"true"` as some providers write it; 1 is not meant unless it is among `more`."""
    return value is True or (not isinstance(value, bool) and value in ("true", *more))


def same_address(one: str, other: str) -> bool:
    """Whether two addresses are one. Case is ignored within ASCII alone: beyond it, different letters fold together."""
    if one.isascii() and other.isascii():
        return one.lower() == other.lower()
    return one == other


def domain_of(address: str) -> str:
    """The domain of an address, in IDNA form and lower case where there is one."""
    domain = address.rpartition("@")[2].lower()
    try:
        return domain.encode("idna").decode("ascii")
    except UnicodeError:
        return domain
