"""A bar for work that takes long: on standard error, if that is a terminal and nobody wants JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from api.cli.terminal.output import Output

Told = Callable[[int, int | None], None]
"""Told how many bytes are done, of how many if that is known."""


@contextlib.contextmanager
def progress(out: Output, what: str) -> Iterator[Told]:
    """The bar is gone at the end of the block."""
    if not out.err.isatty() or out.form == "json":
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(file=out.err), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
