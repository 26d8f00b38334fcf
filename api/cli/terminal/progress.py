"""A progress bar on standard error, if that is a terminal and the format is not JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from api.cli.terminal.output import Output

ReportProgress = Callable[[int, int | None], None]
"""Takes the bytes that are done, and the total if that is known."""


@contextlib.contextmanager
def progress(out: Output, what: str) -> Iterator[ReportProgress]:
    """Show a bar with the title `what` during the block; yields the function that moves it."""
    if not out.err.isatty() or out.format == "json":
        yield lambda _done, _total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=Console(file=out.err), transient=True) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
