"""What the zygote runs before it forks actors does what actors do, and leaves nothing behind."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections import Counter

import pytest

from actors.bus.records import Row
from actors.forwarding import warming
from config.text.access_fields import ACCESS_FIELDS

METHOD, STATUS = ACCESS_FIELDS.index("method"), ACCESS_FIELDS.index("status_code")


def test_a_request_and_a_tunnel_are_served_in_each_round() -> None:
    rows: list[Row] = []
    warming.warm(rows.append)
    seen = Counter((row[METHOD], row[STATUS]) for row in rows)
    assert seen == {("GET", 200): warming.REPEATS, ("CONNECT", 200): warming.REPEATS}


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        warming.warm()
    assert caplog.records == []


def printed(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def test_no_descriptor_and_no_thread_is_left() -> None:
    """Of a process of its own: in that of the tests, threads and sockets of earlier ones may end meanwhile."""
    program = (
        "import os, threading\n"
        "from actors.forwarding import warming\n"
        "def resources(): return sorted(os.listdir('/proc/self/fd')), threading.active_count()\n"
        "warming.warm()  # what is imported at a first use may keep something of its own\n"
        "before = resources()\n"
        "warming.warm()\n"
        "print(resources() == before or (before, resources()))\n"
    )
    assert printed(program) == "True\n"


def test_a_machine_that_cannot_connect_to_itself_holds_it_up_for_a_moment_and_nothing_is_left() -> None:
    program = (
        "import gc, os, socket, time\n"
        "from actors.forwarding import warming\n"
        "warming.warm(repeats=1)\n"
        "def state(): return len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd'))\n"
        "before = state()\n"
        "waiting = []\n"
        "def silent():\n"
        "    listener = socket.create_server(('127.0.0.1', 0), backlog=0)\n"
        "    for _ in range(3):\n"
        "        waiting.append(socket.socket())\n"
        "        waiting[-1].setblocking(False)\n"
        "        waiting[-1].connect_ex(listener.getsockname())\n"
        "    return listener\n"
        "listeners = [silent(), silent()]\n"
        "warming._listener = listeners.pop\n"
        "began = time.monotonic()\n"
        "try: warming.prepare()\n"
        "except OSError as error: print(error, time.monotonic() - began < 60)\n"
        "for each in waiting: each.close()\n"
        "gc.collect()\n"
        "print(state() == before)\n"
    )
    assert printed(program) == "timed out True\nTrue\n"


def test_a_process_that_wakes_and_serves_loads_no_module() -> None:
    program = (
        "import importlib, sys\n"
        "from actors.forwarding import warming\n"
        "from actors.supervision.processes.zygote import PRELOAD\n"
        "for entry in PRELOAD: importlib.import_module(entry.partition(':')[0])\n"
        "before = set(sys.modules)\n"
        "warming.warm(repeats=1)\n"
        "print(sorted(set(sys.modules) - before))\n"
    )
    assert printed(program) == "[]\n"
