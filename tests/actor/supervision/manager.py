"""A service manager for tests: the notifications that it gets, and the descriptors that it keeps."""

from __future__ import annotations

import socket
import threading
from pathlib import Path


class Manager:
    """systemd's end of `$NOTIFY_SOCKET`: the notifications, and its store of descriptors by name."""

    def __init__(self, folder: Path) -> None:
        self.address = folder / "notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(self.address))
        self.socket.settimeout(0)
        self.stored: dict[str, socket.socket] = {}
        self.received: list[str] = []
        self._one_at_a_time = threading.Lock()
        self._over = threading.Event()

    def always(self) -> None:
        """Listen all the time from now on, as a real one does."""

        def listen_again_and_again() -> None:
            while not self._over.wait(0.01):
                self.listen()

        threading.Thread(target=listen_again_and_again, daemon=True).start()

    def listen(self) -> None:
        """Take in all that was sent."""
        with self._one_at_a_time:
            self._listen()

    def _listen(self) -> None:
        while not self._over.is_set():
            try:
                text, descriptors, _flags, _address = socket.recv_fds(self.socket, 4096, 4)
            except BlockingIOError:
                return
            self.received.append(text.decode())
            lines = dict(line.split("=", 1) for line in text.decode().splitlines())
            if "FDSTORE" in lines:
                assert lines["FDPOLL"] == "0"
                self.stored[lines["FDNAME"]] = socket.socket(fileno=descriptors[0])
            elif "FDSTOREREMOVE" in lines and lines["FDNAME"] in self.stored:
                self.stored.pop(lines["FDNAME"]).close()

    def names(self) -> list[str]:
        self.listen()
        return sorted(self.stored)

    def close(self) -> None:
        self._over.set()
        with self._one_at_a_time:
            self._close()

    def _close(self) -> None:
        self.socket.close()
        for each in self.stored.values():
            each.close()
