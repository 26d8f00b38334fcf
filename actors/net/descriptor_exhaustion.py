"""What a process does that has no descriptor left for a new connection: it stops accepting for a moment.

The connection stays in the kernel's queue, so a listener that were asked again at once would be ready again at once.
"""

from __future__ import annotations

import errno

OUT_OF_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of `accept` that last: of the process, of the machine, or of the kernel's memory."""
BREATHER = 0.1
"""Seconds without accepting after one of them."""
