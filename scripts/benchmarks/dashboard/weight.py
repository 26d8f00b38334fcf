"""What is transferred: the first screen, and the whole dashboard, compressed with gzip."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks.dashboard.visitor import Visitor
from benchmarks.report import Bar, Row

KB = 1000
FIRST_SCREEN, ALL = 150, 300
"""kB, at most."""
CODE = {".html", ".js", ".css", ".svg"}
LOADED = "() => performance.getEntriesByType('resource').map((entry) => entry.name)"


def measure(visitor: Visitor) -> list[Row]:
    """The files that a cold load of the first screen asks for, and all that there are."""
    static = Path(str(files("api.ui") / "static"))
    with visitor.page() as page:
        page.goto("/ui/", wait_until="networkidle")
        paths = {urlsplit(url).path.removeprefix("/ui/") for url in page.evaluate(LOADED) if "/ui/" in url}
    first = [static / "index.html", *(static / path for path in paths)]
    everything = [file for file in static.rglob("*") if file.suffix in CODE]
    return [
        Row("dashboard: first screen, with gzip", "kB", _gzipped(first) / KB, bar=Bar(FIRST_SCREEN)),
        Row("dashboard: all screens, with gzip", "kB", _gzipped(everything) / KB, bar=Bar(ALL)),
    ]


def _gzipped(found: list[Path]) -> int:
    """Bytes as they are sent: small files have no compressed form."""
    forms = [(file.with_name(f"{file.name}.gz"), file) for file in found]
    return sum((packed if packed.exists() else file).stat().st_size for packed, file in forms)
