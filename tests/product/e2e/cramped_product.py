"""A product on a small file system that can be filled."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.kit.product import Product


@dataclass
class CrampedProduct:
    """A product whose data lie on a small disk, which `fill` fills until `clear`."""

    product: Product
    disk: Path

    @property
    def _filler(self) -> Path:
        return self.disk / "filler"

    def fill(self) -> None:
        """Write until there is no room."""
        with pytest.raises(OSError, match="No space"):
            self._write_on()

    def _write_on(self) -> None:
        with self._filler.open("wb", buffering=0) as out:
            while True:
                out.write(b"x" * 4096)

    def clear(self) -> None:
        """There is room again."""
        self._filler.unlink(missing_ok=True)
