"""The standard streams of the process."""

from __future__ import annotations

import os
import sys


def open_missing_streams() -> None:
    """Replace closed streams (`>&-`) by /dev/null: Python has None for them, and the next file takes the number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
