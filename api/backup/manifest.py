"""The manifest of an archive: its release, formats, folders and files."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from config.text.validation_messages import worded

KIND = "proxyfleet.backup"
FORMAT = 1
FLEET = "fleet.sqlite"
"""The file of configuration, accounts, history and audit trail, which lies in the data directory itself."""
FOLDERS = ("metrics", "webhooks", "lists", "logs")
"""Folders of the data directory that may be in an archive; keys are apart."""
OPTIONAL = ("logs",)

LARGEST = 4 * 2**20
"""Bytes of a manifest: enough for 20,000 files."""

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}", re.ASCII)
"""Names that a file in an archive may have: all that the product makes, and few of editors and file systems."""


_YEAR_10000 = 253402300800


class BadArchive(Exception):
    """It is no archive that this release can read; the text says why."""


class Member(BaseModel):
    """One file: its path below the data directory, its size in bytes and the SHA-256 of its content in hex."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str
    size: Annotated[int, Field(ge=0)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class Manifest(BaseModel):
    """`product` is the release that made it, `created_at` Unix seconds, `keys` whether the sealed keys are there.

    `data_format` is that of the data directory (`config.files.data_format`), `format` that of the archive.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Literal["proxyfleet.backup"]
    format: int
    product: str
    data_format: Annotated[int, Field(ge=1)]
    created_at: Annotated[float, Field(ge=0, lt=_YEAR_10000)]
    folders: tuple[str, ...]
    keys: bool
    files: tuple[Member, ...]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(member.size for member in self.files)


def read_manifest(content: bytes) -> Manifest:
    """The manifest in `content`. Raises `BadArchive`."""
    if len(content) > LARGEST:
        raise BadArchive(f"its manifest has more than {LARGEST} bytes")
    found = re.search(rb'"format": ?([0-9]{1,9})\b', content)
    if found is not None and int(found[1]) > FORMAT:
        raise BadArchive(f"format {int(found[1])} of a later release; this one reads up to {FORMAT}")
    try:
        manifest = Manifest.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "it"
        raise BadArchive(f"its manifest is invalid: {field} {worded(first)}") from error
    paths = [member.path for member in manifest.files]
    for path in paths:
        folder, _, name = path.partition("/")
        if path != FLEET and (folder not in manifest.folders or not NAME.fullmatch(name)):
            raise BadArchive(f"its manifest names {path!r}, which can't be in a backup")
    twice = len(set(paths)) != len(paths) or len(set(manifest.folders)) != len(manifest.folders)
    if twice or not set(manifest.folders) <= set(FOLDERS):
        raise BadArchive("its manifest contradicts itself")
    return manifest
