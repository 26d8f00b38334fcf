"""Cells of CSV files that people open in a spreadsheet."""

from __future__ import annotations

FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
"""Characters by which a spreadsheet recognizes a formula at the beginning of a cell, those of full width too."""


def with_apostrophe(cell: str) -> str:
    """`cell` as no spreadsheet takes it for a formula; `without_apostrophe` returns the text."""
    return f"'{cell}" if cell[:1] in FORMULA or cell[:1] == "'" else cell


def without_apostrophe(cell: str) -> str:
    """The text that `with_apostrophe` made a cell of."""
    return cell[1:] if cell[:1] == "'" and (cell[1:2] in FORMULA or cell[1:2] == "'") else cell
