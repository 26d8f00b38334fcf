"""A live table of the metrics that the product publishes: the whole use of the public socket in one small program."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import msgpack
import zmq

COLUMNS = (
    ("requests/s", "requests_per_second"),
    ("open", "active_connections"),
    ("avg ms", "response_time_avg"),
    ("p99 ms", "response_time_p99"),
    ("errors %", "error_rate"),
    ("in B/s", "bandwidth_in"),
    ("out B/s", "bandwidth_out"),
    ("requests", "requests_total"),
)
WIDTH = 32
"""Characters of the column with the names."""
STALE = 5.0
"""Seconds after which a proxy without new messages is left out."""
NOTHING_CAME = (
    "watch-metrics: nothing came in 10 s. Is this the address of metrics.publish, and does the product run? "
    "Where it speaks CURVE: is your public key in metrics.curve_clients?\n"
)


def main() -> int:
    """Until Ctrl-C; with `--once` until there is something to show."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address", nargs="?", default="tcp://127.0.0.1:5556", help="metrics.publish of the product")
    parser.add_argument("--once", action="store_true", help="print one table and end; 1 when nothing comes in 10 s")
    parser.add_argument("--server-key", metavar="KEY", help="the server's public key, where it speaks CURVE")
    parser.add_argument("--key-file", metavar="FILE", type=Path, help="your secret key, where the server speaks CURVE")
    parser.add_argument("--new-key", metavar="FILE", type=Path, help="make a secret key, print its public one and end")
    given = parser.parse_args()
    if given.new_key:
        return make_key(given.new_key)
    if bool(given.server_key) != bool(given.key_file):
        parser.error("--server-key and --key-file go together")
    with zmq.Context() as context, context.socket(zmq.SUB) as subscriber:
        subscriber.linger = 0
        if given.server_key:
            try:
                secret = given.key_file.read_bytes().strip()
                subscriber.curve_secretkey, subscriber.curve_publickey = secret, zmq.curve_public(secret)
                subscriber.curve_serverkey = given.server_key.encode()
            except OSError as error:
                parser.error(f"{given.key_file}: {error.strerror}")
            except (ValueError, zmq.ZMQError):
                parser.error("--server-key and what is in --key-file must be keys in Z85, of 40 characters")
        subscriber.subscribe("metrics.")
        subscriber.subscribe("events.")
        try:
            subscriber.connect(given.address)
        except zmq.ZMQError as error:
            parser.error(f"{given.address}: {error.strerror}; an address is such as tcp://127.0.0.1:5556")
        try:
            return watch(subscriber, given.once)
        except KeyboardInterrupt:
            return 0


def make_key(file: Path) -> int:
    """A new key of a subscriber; what is printed belongs into `metrics.curve_clients` of the product."""
    public, secret = zmq.curve_keypair()
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as opened:
            opened.write(secret + b"\n")
    except OSError as error:
        sys.stderr.write(f"watch-metrics: {file}: {error.strerror}; nothing was written\n")
        return 1
    sys.stdout.write(public.decode() + "\n")
    return 0


def watch(subscriber: zmq.Socket[bytes], once: bool) -> int:
    """Show what comes, second by second."""
    rows: dict[str, tuple[float, dict[str, Any]]] = {}
    events: deque[str] = deque(maxlen=8)
    began = time.monotonic()
    while True:
        for topic, payload in received(subscriber):
            if topic.startswith("events."):
                events.append(f"{time.strftime('%X', time.localtime(payload['timestamp']))} {payload['type']}")
            else:
                rows[payload.get("proxy_id", "(all)")] = (time.monotonic(), payload)
        fresh = {name: payload for name, (received, payload) in rows.items() if time.monotonic() - received < STALE}
        if once and (fresh or time.monotonic() - began > 10):
            if not fresh:
                sys.stderr.write(NOTHING_CAME)
                return 1
            sys.stdout.write(table(fresh, events))
            return 0
        if not once:
            sys.stdout.write("\x1b[2J\x1b[H" + table(fresh, events))
            sys.stdout.flush()


def received(subscriber: zmq.Socket[bytes]) -> list[tuple[str, dict[str, Any]]]:
    """What comes within a second: wait for the first, then take what is there."""
    found = []
    timeout = 1000
    while subscriber.poll(timeout):
        topic, payload = subscriber.recv_multipart()
        message = msgpack.unpackb(payload)
        if message.get("v") == 1:  # another version may mean something else by the same names
            found.append((topic.decode(), message))
        timeout = 50
    return found


def table(rows: dict[str, dict[str, Any]], events: deque[str]) -> str:
    """The text to show."""
    lines = [f"{'proxy':<{WIDTH}}" + "".join(f"{title:>12}" for title, _name in COLUMNS)]
    named = [(proxy_label(key, figures), figures) for key, figures in rows.items()]
    for label, figures in sorted(named, key=lambda row: row[0]):
        lines.append(f"{label:<{WIDTH}}" + "".join(f"{figures.get(field, 0):>12,.6g}" for _title, field in COLUMNS))
    return "\n".join([*lines, "", *events]) + "\n"


def proxy_label(key: str, figures: dict[str, Any]) -> str:
    """Name and port, as in the product's log, in the width of the column; `key` of what has no name."""
    if "name" not in figures:
        return key
    port = f" ({figures['port']})"
    name, room = figures["name"], WIDTH - 1 - len(port)
    return (name if len(name) <= room else f"{name[: room - 1]}…") + port


if __name__ == "__main__":
    sys.exit(main())
