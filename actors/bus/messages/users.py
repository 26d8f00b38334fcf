"""Requests of the command line to the API about its users."""

from __future__ import annotations

from dataclasses import field

from actors.bus.codec import message


@message
class ResetPassword:
    """Command line → API: give this user another password, a random one when `password` is None.

    → `PasswordReset`, or `Failed`, whose field is `username` when there is no such user.
    """

    username: str
    password: str | None = field(default=None, repr=False)


@message
class PasswordReset:
    """API → command line: it is stored, and all sign-ins of the user are over.

    `password` is the new one. `disabled` says that the user can't sign in with it, since the account isn't active.
    """

    disabled: bool
    password: str = field(repr=False)
