"""Groups of fields, such as `limits` or `settings`, as one cell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from api.cli.quantities import with_unit
from api.cli.terminal.output import cell_text


@dataclass(frozen=True, slots=True)
class Fields:
    """`timeout 30 s, keep_alive no`: by the names that `--set` takes, without empty values and limits of 0."""

    values: Mapping[str, Any]

    @property
    def text(self) -> str:
        """With units."""
        return self._joined(plain=False)

    @property
    def plain(self) -> str:
        """With numbers of bytes and seconds."""
        return self._joined(plain=True)

    def _joined(self, plain: bool) -> str:
        parts = (
            f"{name} {_with_unit(name, value, plain)}"
            for name, value in self.values.items()
            if value != [] and (value or isinstance(value, bool))
        )
        return ", ".join(parts) or "-"


def _with_unit(name: str, value: Any, plain: bool) -> str:
    text = cell_text(with_unit(name, value), plain)
    return f"{text} s" if name in ("timeout", "sleep_after") and not plain else text
