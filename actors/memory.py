"""Memory that a process has freed and still has: given back to the system when much of it was for a moment alone.

A start reads all that is stored and keeps a small part of it. glibc keeps what was freed between things that stay, and
would use it again; a process that lives for months needs none of it.
"""

from __future__ import annotations

import ctypes
import gc
import logging

log = logging.getLogger(__name__)


def give_back() -> None:
    """Collect garbage, take what is left out of later collections, and give free pages back, where the C library can.

    For the end of a start: it takes about as long as a full collection.
    """
    gc.unfreeze()  # what was read without collections may have garbage in it
    gc.collect()
    gc.freeze()  # what a start leaves lives long, and makes each collection slow
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except AttributeError:  # musl
        log.debug("the C library keeps free memory: it has no malloc_trim")
