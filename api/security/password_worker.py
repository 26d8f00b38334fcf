"""The process that checks passwords for the API: `python -m api.security.password_worker CORES DESCRIPTOR...`.

CORES are numbers with commas between them. Each descriptor is a lane: a SEQPACKET socket for one request at a time,
with a thread of its own. A request is what bcrypt gets (`config.passwords.attempts`), a NUL, and the hash; the reply is
`1` or `0`. The password itself is sent here for foreign hashes alone. When the API closes a lane, it closes all,
and the process ends.

It is a process and no thread because it runs at a lower priority (`NICENESS`): a thread with a low priority would
hold the interpreter's lock while it has no core, and stop all others.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

from setproctitle import setproctitle

from actors.signals import OF_THE_GROUP
from config.passwords import check_hash

NICENESS = 10
SEPARATOR = b"\0"
"""No hash has one."""
LONGEST = 512


def main(cores: list[int], descriptors: list[int]) -> None:
    """Serve the lanes until the API closes them."""
    setproctitle("proxyfleet: hashing")
    for number in OF_THE_GROUP:  # the API's end is ours
        signal.signal(number, signal.SIG_IGN)
    _lower_priority(cores)
    lanes = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    threads = [threading.Thread(target=_serve, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _lower_priority(cores: list[int]) -> None:
    try:
        os.sched_setaffinity(0, cores)  # the API stays on one of them
        os.nice(NICENESS)
    except OSError as error:  # a sandbox forbids it; sign-ins and reads then have the same right
        print(f"cannot lower the priority of the password worker: {error}", file=sys.stderr)


def _serve(lane: socket.socket) -> None:
    try:
        while request := lane.recv(LONGEST):
            given, _, hashed = request.rpartition(SEPARATOR)
            lane.send(b"1" if check_hash(given, hashed) else b"0")
    except OSError:  # the API is gone
        return


if __name__ == "__main__":
    main([int(core) for core in sys.argv[1].split(",")], [int(descriptor) for descriptor in sys.argv[2:]])
