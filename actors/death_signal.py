"""A process that is killed when its parent ends (prctl(2), PR_SET_PDEATHSIG)."""

from __future__ import annotations

import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """Be killed when the parent, the process of this id, ends; end now if it has ended already."""
    _set(int(signal.SIGKILL))
    if os.getppid() != parent:
        os._exit(1)


def end_with_none() -> None:
    """Take it back."""
    _set(0)


def _set(number: int) -> None:
    import ctypes  # not for the zygote, which imports this module, too

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
