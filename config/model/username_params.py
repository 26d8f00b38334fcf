"""`username_params` of a proxy: user names with parameters, as `alice-session-7-country-de`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import StrictBool

from config.model.declaration import Given, Group

Separator = Literal["-", ".", "+", "~", "=", ",", ";"]
"""What a URL may have in a user name as it is (RFC 3986 3.2.1) and no shell reads, but for letters, digits and `_`,
which names of parameters have, and the colon, which ends the user name in HTTP Basic (RFC 7617 2)."""


class UsernameParams(Group):
    """How user names with parameters are read. `reject_unknown`: unknown parameters are refused, not ignored."""

    enabled: Annotated[bool, Given(StrictBool)] = False
    separator: Annotated[Separator, Given(Separator)] = "-"
    reject_unknown: Annotated[bool, Given(StrictBool)] = False
