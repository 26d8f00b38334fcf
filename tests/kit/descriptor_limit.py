"""A listening socket in a process that has run out of descriptors."""

from __future__ import annotations

import errno
import socket
from typing import Any


class Poor(socket.socket):
    """A listening socket whose process has no descriptor for a connection while `poor`."""

    poor = False
    asked = 0

    def accept(self) -> tuple[socket.socket, Any]:
        self.asked += 1
        if self.poor:
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()
