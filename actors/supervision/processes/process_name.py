"""The names of processes."""

from __future__ import annotations

from setproctitle import setproctitle, setthreadtitle


def name_process(name: str) -> None:
    """What ps shows, and in short what top, ss and the kernel show (proc(5), comm)."""
    setproctitle(f"proxyfleet: {name}")
    kind, _, rest = name.partition(".")
    setthreadtitle(f"fwd-{rest[-8:]}" if rest else kind)
