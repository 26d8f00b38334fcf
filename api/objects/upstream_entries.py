"""Upstreams of proxies and pools as entries of a document have them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field

from api.engine.transfer import password
from api.openapi.schemas.proxies import UpstreamAuthView, UpstreamView
from config.files.secret_box import SecretBox
from config.model.fields import NULLABLE, InvalidResource, Part
from config.model.upstreams import PURPOSE, Password, ProxyUpstream, U, UpstreamAuth, UpstreamInput


class EntryUpstreamAuth(Part, UpstreamAuth):
    """`auth` of an upstream of an entry."""

    password: Annotated[Password | None, NULLABLE] = Field(None, repr=False)


class EntryUpstream(UpstreamInput):
    """An upstream of an entry."""

    auth: EntryUpstreamAuth | None = None

    @property
    def hides_password(self) -> bool:
        """Whether the password is null: it exists, but is not in the document."""
        return self.auth is not None and "password" in self.auth.model_fields_set and self.auth.password is None


class ExportedUpstreamAuth(UpstreamAuthView):
    """The credentials for an upstream."""

    password: None = None


class ExportedUpstream(UpstreamView):
    """An upstream of an exported proxy."""

    auth: ExportedUpstreamAuth | None = None


def with_password(form: dict[str, Any], upstream: ProxyUpstream) -> dict[str, Any]:
    """The entry of an upstream, from its view."""
    if "auth" in form:
        form["auth"] |= password(upstream.password)
    return form


def without_lost_password(upstream: U, seal: SecretBox) -> U:
    """The upstream without a password that can't be opened any more."""
    if upstream.password is None or seal.opens(upstream.password, PURPOSE):
        return upstream
    return upstream.model_copy(update={"password": None})


def without_lost_passwords(upstreams: Sequence[U], seal: SecretBox) -> tuple[list[U], list[str]]:
    """All of them, and the fields of the passwords that are lost."""
    kept = [without_lost_password(each, seal) for each in upstreams]
    return kept, [f"upstreams[{index}].auth.password" for index, each in enumerate(kept) if each != upstreams[index]]


def refuse_unknown_passwords(given: Sequence[Any], stored: Sequence[ProxyUpstream]) -> None:
    """Raise `InvalidResource` for an entry that hides a password which nothing is known of."""
    for index, (entry, upstream) in enumerate(zip(given, stored, strict=True)):
        if entry.hides_password and upstream.password is None:
            raise InvalidResource(f"upstreams[{index}].auth.password", "is null, and no such password is known here")
