"""A process without a descriptor for a new connection stops accepting for a moment.

The connection stays in the kernel's queue, so a listener that was polled again at once would be ready at once.
"""

from __future__ import annotations

import errno

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` that last: of the process, of the machine, or of the kernel's memory."""
ACCEPT_PAUSE = 0.1
"""Seconds without accepting after one of them."""
