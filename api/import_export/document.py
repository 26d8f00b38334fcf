"""The models of the document that an import takes. Exports have the same fields.

A field that is left out stays as it is, and has its default in a new resource; in a minimal document it has its default
in a resource that is there, too. A section that is left out is not changed. A secret may be null: then the stored one
stays, or the one in `secrets` is taken. The entries of each kind are declared with it (`api.engine.transfer`).

**Secrets** on their way from one installation to another are sealed under a passphrase. The key is derived by scrypt
(RFC 7914) from the passphrase and a random salt; AES-256-GCM (NIST SP 800-38D) with a random nonce seals one JSON text
that has all secrets in it: hashes of passwords as they are stored, and in the clear what has to be sent again. The
parameters are authenticated with it, so they can't be exchanged.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from typing import Annotated, Any, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, ValidationError, model_validator

from api.objects.kinds import KINDS
from config.model import json_patterns
from config.model.choices import UpstreamProtocol
from config.model.declaration import M, extended
from config.model.fields import Body, Input, Port, example, example_of, refuse_long
from config.model.proxies import ProxyCreate
from config.model.shared_objects.upstreams import Host, Password, Username
from config.model.webhooks import Headers, Secret
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
    return extended(cls, sections)


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


SHORTEST_PASSPHRASE = 12
LONGEST_PASSPHRASE = 1024
_COST: dict[str, Any] = {"kdf": "scrypt", "n": 2**15, "r": 8, "p": 1}
"""32 MiB and about a tenth of a second for each guess."""


class VaultError(ValueError):
    """The secrets can't be opened; `field` is `X-Passphrase` or below `secrets`. The text holds no secret."""

    def __init__(self, field: str, error: str) -> None:
        super().__init__(f"{field}: {error}")
        self.field = field
        self.error = error


PasswordHash = Annotated[StrictStr, Field(pattern=r"^\$2[aby]\$(0[4-9]|1[0-5])\$[./0-9A-Za-z]{53}$")]
"""A hash of bcrypt. Its cost is bounded, since every sign-in pays it: with 31 one would take days."""


class _Part(BaseModel):
    """A document may come from anybody, so sealed secrets are validated as those in the clear."""

    model_config = ConfigDict(extra="forbid", strict=True)


AccountHash = Annotated[StrictStr, Field(pattern=r"^(?:plain:)?\$2[aby]\$(0[4-9]|1[0-5])\$[./0-9A-Za-z]{53}$")]
"""As an account of the fleet has it, which may be of elsewhere (`config.passwords.FOREIGN`)."""


class UpstreamSecret(_Part):
    """The password of an upstream proxy, which is known by the other four."""

    protocol: UpstreamProtocol
    host: Host
    port: Port
    username: Username | None
    password: Password = Field(repr=False)

    @model_validator(mode="after")
    def _fits_the_protocol(self) -> UpstreamSecret:
        if self.protocol == "socks5":
            refuse_long("password", self.password)
        return self


class ProxySecrets(_Part):
    """Of one proxy: the hash of `auth.password`, those of its accounts by name, the passwords of its upstreams,
    the secret of its authentication back end.
    """

    auth: PasswordHash | None = Field(None, repr=False)
    accounts: dict[str, PasswordHash] = Field(default_factory=dict, repr=False)
    upstreams: list[UpstreamSecret] = []
    backend: Secret | None = Field(None, repr=False)


class PlacedSecrets(_Part):
    """Of what is known by its name and its URL: the headers of a webhook, or of the source of a list or a pool, and the
    secret that a webhook is signed with."""

    name: str
    url: str
    headers: Headers = Field(repr=False)
    secret: Secret | None = Field(None, repr=False)


class Secrets(_Part):
    """All of them: of proxies by name, hashes of users by name, of webhooks; hashes of accounts of the fleet; of pools
    by name, and of their sources; of lists.

    Those of accounts are by user name, in the order of the entries that have it; null without a password.
    """

    proxies: dict[str, ProxySecrets] = {}
    users: dict[str, PasswordHash] = Field(default_factory=dict, repr=False)
    webhooks: list[PlacedSecrets] = []
    accounts: dict[str, list[AccountHash | None]] = Field(default_factory=dict, repr=False)
    pools: dict[str, list[UpstreamSecret]] = {}
    lists: list[PlacedSecrets] = []
    pool_sources: list[PlacedSecrets] = []

    def of_proxy(self, name: str) -> ProxySecrets:
        """Those of this proxy, without any if there are none."""
        return self.proxies.get(name) or ProxySecrets()


def seal_secrets(secrets: Secrets, passphrase: str) -> dict[str, Any]:
    """`secrets` of a document."""
    salt, nonce = os.urandom(16), os.urandom(12)
    head = {**_COST, "salt": _text(salt), "cipher": "AES-256-GCM", "nonce": _text(nonce)}
    key = _key(passphrase, salt, int(_COST["n"]))
    data = AESGCM(key).encrypt(nonce, secrets.model_dump_json().encode(), _authenticated(head))
    return {**head, "data": _text(data)}


def unseal_secrets(sealed: SealedSecrets, passphrase: str) -> Secrets:
    """What was sealed with this passphrase. Raises `VaultError`."""
    head = sealed.model_dump(exclude={"data"})
    salt, nonce, data = (_bytes(name, getattr(sealed, name)) for name in ("salt", "nonce", "data"))
    if len(nonce) != 12 or len(salt) < 16:
        raise VaultError("secrets", "the nonce has 12 bytes and the salt at least 16")
    try:
        content = AESGCM(_key(passphrase, salt, sealed.n)).decrypt(nonce, data, _authenticated(head))
    except InvalidTag as error:
        raise VaultError("secrets", "can't be opened: another passphrase, or the document was altered") from error
    try:
        return Secrets.model_validate_json(content)
    except ValidationError as error:
        raise VaultError("secrets.data", "holds something else than the secrets of this version") from error


def check_passphrase(header: str) -> str:
    """The passphrase in a header, as WSGI gives it (its bytes as Latin-1): UTF-8 is meant. Raises `VaultError`."""
    try:
        text = header.encode("latin-1").decode("utf-8")
    except UnicodeError as error:
        raise VaultError("X-Passphrase", "must be UTF-8") from error
    if not SHORTEST_PASSPHRASE <= len(text) <= LONGEST_PASSPHRASE or not text.isprintable():
        error_text = f"must be {SHORTEST_PASSPHRASE} to {LONGEST_PASSPHRASE} printable characters"
        raise VaultError("X-Passphrase", error_text)
    return text


def _key(passphrase: str, salt: bytes, cost: int) -> bytes:
    return Scrypt(salt=salt, length=32, n=cost, r=8, p=1).derive(passphrase.encode())


def _authenticated(head: dict[str, Any]) -> bytes:
    return json.dumps([KIND, VERSION, head], sort_keys=True).encode()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(name: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise VaultError(f"secrets.{name}", "is not base64") from error
