"""The authentication back end of a proxy: in requests, and as it is stored, with its secret sealed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StrictFloat, StrictInt

from config.files.secret_box import SecretBox
from config.model import json_patterns
from config.model.declaration import SECRET, Given, Group, gives, update
from config.model.fields import InvalidProxy, Part
from config.model.webhooks import Secret, Url, new_secret

PURPOSE = "authentication back end"

OnError = Literal["deny", "allow_cached"]
_Timeout = Annotated[StrictInt | StrictFloat, Field(ge=0.1, le=60), json_patterns.number(60, minimum=0.1)]
_Kept = Annotated[StrictInt | StrictFloat, Field(ge=0, le=86_400), json_patterns.number(86_400, minimum=0)]


class AuthBackend(Group):
    """A service of the operator's own that decides about users who are no accounts. Seconds.

    `cache_seconds` is how long it holds that a user is allowed, `negative_seconds` that one isn't. While it fails,
    `allow_cached` lets in those who were allowed before.
    """

    url: Annotated[str, Given(Url)]
    timeout: Annotated[float, Given(_Timeout)] = 5
    cache_seconds: Annotated[float, Given(_Kept)] = 60
    negative_seconds: Annotated[float, Given(_Kept)] = 5
    on_error: Annotated[OnError, Given(OnError)] = "deny"
    secret_sealed: Annotated[str, SECRET] = Field("", repr=False)


@gives(AuthBackend)
class BackendInput(Part):
    """`auth.backend` of a request: any part; what is not given stays. Without a `secret` a new one is made."""

    secret: Secret | None = Field(None, repr=False)


def change_backend(before: AuthBackend | None, given: BackendInput, seal: SecretBox, makes: bool = True) -> AuthBackend:
    """As it is to be stored. Without a secret one is made if `makes`.

    Raises `InvalidProxy`, `SecretBoxError`.
    """
    after = (before or AuthBackend(url="")).model_copy(update=update(before or AuthBackend(url=""), given))
    if not after.url:
        raise InvalidProxy("auth.backend.url", "is required")
    secret = given.secret
    if not after.secret_sealed and secret is None:
        if not makes:
            raise InvalidProxy("auth.backend.secret", "is required: no such secret is known here")
        secret = new_secret()
    known = after.secret_sealed
    if secret is None or (known and seal.open(known, PURPOSE) == secret):
        return after
    return after.model_copy(update={"secret_sealed": seal.seal(secret, PURPOSE)})


def set_secret(before: AuthBackend | None, after: AuthBackend | None, seal: SecretBox) -> str | None:
    """The secret, if this change has set it. Raises `SecretBoxError`."""
    known = "" if before is None else before.secret_sealed
    return None if after is None or after.secret_sealed == known else seal.open(after.secret_sealed, PURPOSE)
