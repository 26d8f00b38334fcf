"""A small file system that can be filled."""

from __future__ import annotations

from pathlib import Path


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as out:
        while True:
            out.write(b"x" * 4096)
