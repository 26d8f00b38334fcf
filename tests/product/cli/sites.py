"""Machines with a data directory, for tests of backups; and archives that `proxyfleet backup` would not make."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from api.store import open_store
from config.files.durable import DATA_FORMAT
from config.files.paths import DataDir
from tests.product.cli.shell import Ran, Shell

PASSPHRASE = "correct horse battery staple"


class Site:
    """A machine with a data directory, and a command line there."""

    def __init__(self, folder: Path, data: Path) -> None:
        self.folder = folder
        self.data = DataDir(data)
        self.secret = folder / "passphrase"
        self.secret.write_text(PASSPHRASE + "\n")
        self.shell = Shell(folder / "home", None, PROXYFLEET_DATA_DIR=str(data))

    def backup(self, name: str = "b.tar.gz", *more: str) -> Path:
        self.shell.good("backup", str(self.folder / name), "--passphrase-file", str(self.secret), *more)
        return self.folder / name

    def restore(self, file: Path, *more: str) -> Ran:
        return self.shell("restore", str(file), "--passphrase-file", str(self.secret), *more)

    def names(self) -> list[str]:
        store = open_store(self.data)
        try:
            return sorted(document.body["name"] for document in store.find("proxies"))
        finally:
            store.close()


def forget(site: Site, name: str = "plain") -> None:
    """Remove a proxy behind the product's back."""
    store = open_store(site.data)
    (gone,) = (document for document in store.find("proxies") if document.body["name"] == name)
    store.delete("proxies", gone.id)
    store.close()


def members_of(file: Path) -> list[str]:
    with tarfile.open(file) as tar:
        return tar.getnames()


def rebuilt(file: Path, target: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The archive with its members changed."""
    with tarfile.open(file) as tar:
        members = {}
        for info in tar.getmembers():
            content = tar.extractfile(info)
            assert content is not None
            members[info.name] = content.read()
    change(members)
    with tarfile.open(target, "w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return target


NO_FILES = {
    "kind": "proxyfleet.backup",
    "format": 1,
    "product": "1",
    "data_format": DATA_FORMAT,
    "created_at": 0.0,
    "folders": [],
    "files": [],
}


def crafted(file: Path, sealed: bytes | None = None, header: tarfile.TarInfo | None = None, **values: Any) -> Path:
    """An archive that only its manifest, keys in this form and a last header are in."""
    manifest = json.dumps({**NO_FILES, "keys": sealed is not None, **values}).encode()
    with tarfile.open(file, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for name, content in (("manifest.json", manifest), ("keys.sealed", sealed)):
            if content is not None:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
        if header is not None:
            tar.addfile(header)
    return file


def header(kind: bytes = tarfile.REGTYPE, size: int = 0, **pax: str) -> tarfile.TarInfo:
    info = tarfile.TarInfo("lists/x")
    info.type, info.size, info.pax_headers = kind, size, pax
    return info
