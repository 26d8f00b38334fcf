"""The process that checks passwords for the API: `python -m api.security.password_worker CORES DESCRIPTOR...`.

CORES are numbers with commas between them. Each descriptor is a lane: a SEQPACKET socket on which one question is asked
at a time, answered by a thread of its own. A question is the pre-hashed password (44 octets of base64) and the stored
hash behind it; the answer is `1` or `0`. The password itself never comes here. A lane that ends was closed by the API,
and then all end.

It is a process and no thread because it gives way to everything else (`NICENESS`): a thread with a low priority would
hold the interpreter's lock while it is not given a core, and stop all others.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading

from setproctitle import setproctitle

from actors.signals import OF_THE_GROUP
from config.passwords import check_prehashed

NICENESS = 10
PREHASH = 44
LONGEST = 512


def main(cores: list[int], descriptors: list[int]) -> None:
    """Answer until the lanes end."""
    setproctitle("proxyfleet: hashing")
    for number in OF_THE_GROUP:  # the API's end is ours
        signal.signal(number, signal.SIG_IGN)
    _give_way(cores)
    lanes = [socket.socket(fileno=descriptor) for descriptor in descriptors]
    threads = [threading.Thread(target=_serve, args=(lane,)) for lane in lanes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _give_way(cores: list[int]) -> None:
    try:
        os.sched_setaffinity(0, cores)  # the API stays on one of them
        os.nice(NICENESS)
    except OSError as error:  # a sandbox forbids it; sign-ins and reads then have the same right
        print(f"cannot lower the priority of the password worker: {error}", file=sys.stderr)


def _serve(lane: socket.socket) -> None:
    try:
        while question := lane.recv(LONGEST):
            lane.send(b"1" if check_prehashed(question[:PREHASH], question[PREHASH:]) else b"0")
    except OSError:  # the API is gone
        return


if __name__ == "__main__":
    main([int(core) for core in sys.argv[1].split(",")], [int(descriptor) for descriptor in sys.argv[2:]])
