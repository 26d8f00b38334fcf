"""The models of the document that an import takes. Exports have the same fields.

A field that is left out stays as it is, and has its default in a new resource; in a minimal document it has its default
in a resource that is there, too. A section that is left out is not changed. A secret may be null: then the stored one
stays, or the one in `secrets` is taken. The entries of each kind are declared with it (`api.engine.transfer`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, StrictStr, create_model

from api.objects.kinds import KINDS
from config.model import json_patterns
from config.model.declaration import M
from config.model.fields import Body, Input, example, example_of
from config.model.proxies import ProxyCreate
from config.settings.runtime import SettingsUpdate

KIND = "proxyfleet.config"
VERSION = 1

_Base64 = Annotated[StrictStr, json_patterns.text("^[A-Za-z0-9+/]*={0,2}$")]


class SealedSecrets(Input):
    """`secrets`: everything that is null elsewhere, under a key that is derived from a passphrase."""

    kdf: Literal["scrypt"]
    n: Literal[16384, 32768, 65536, 131072]
    r: Literal[8]
    p: Literal[1]
    salt: Annotated[_Base64, Field(max_length=88)]
    cipher: Literal["AES-256-GCM"]
    nonce: Annotated[_Base64, Field(max_length=24)]
    data: _Base64


def _with_sections(cls: type[M]) -> type[M]:
    """Decorates the model of the document: with the entries of each kind."""
    sections: dict[str, Any] = {}
    for name, kind in KINDS.items():
        entries = Annotated[list[kind.transfer.model], Field(max_length=kind.in_document or kind.most)]  # type: ignore[name-defined]
        sections[name] = (entries | None, None)
    return create_model(cls.__name__, __base__=cls, __module__=cls.__module__, __doc__=cls.__doc__, **sections)


@_with_sections
class ConfigDocument(Body):
    """The body of an import. A section that is left out is not touched.

    With `minimal` each field that an object in it leaves out has its default, as `export --minimal` means it.
    """

    model_config = example(
        {
            "kind": "proxyfleet.config",
            "version": 1,
            "proxies": [{**example_of(ProxyCreate), "status": "active"}],
            "users": [{"username": "bob", "role": "operator", "password": "correct horse battery"}],
            "settings": example_of(SettingsUpdate),
        }
    )

    kind: Literal["proxyfleet.config"]
    version: Literal[1]
    minimal: StrictBool | None = None
    settings: SettingsUpdate | None = None
    secrets: SealedSecrets | None = None

    def section(self, collection: str) -> list[Any] | None:
        """The entries of a kind, None if the document has none."""
        entries: list[Any] | None = getattr(self, collection)
        return entries
