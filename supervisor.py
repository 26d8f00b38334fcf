"""The command `proxyfleet`: `main` is the console script. All commands are in `api/cli`.

For `serve` the zygote and the API's process come first, before anything is known of the configuration and before the
modules of the command line are loaded: by far the longest part of a start begins with them. When nothing becomes of the
start, they are ended.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress

_STARTS_NOTHING = {"--check", "--help", "-h"}
"""Options with which `serve` starts nothing."""


def open_missing_streams() -> None:
    """Replace closed streams (`>&-`) by /dev/null: Python has None for them, and the next file takes the number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))


def main() -> None:
    """Run the command line of this process."""
    open_missing_streams()
    started = None
    if sys.argv[1:2] == ["serve"]:
        gc.disable()  # until the store is read: next to all that is loaded stays
    with ExitStack() as stack:
        if _starts_product(sys.argv[1:]):
            from actors.supervision.processes.zygote_process import first_processes

            with suppress(OSError):  # `serve` tries it again, and says what is wrong
                started = stack.enter_context(first_processes())
        from api.cli.application import application, run

        sys.exit(run(application(sys.argv[1:]), obj=started))


def _starts_product(arguments: Sequence[str]) -> bool:
    return arguments[:1] == ["serve"] and _STARTS_NOTHING.isdisjoint(arguments)


if __name__ == "__main__":
    main()
