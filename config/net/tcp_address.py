"""ZeroMQ addresses of TCP: `tcp://`, an address of this machine and a port."""

from __future__ import annotations

import re

TCP_ADDRESS = re.compile(r"tcp://([0-9.]+|\[[0-9a-fA-F:.]+\]):([0-9]{1,5})", re.ASCII)


def tcp_parts(address: str) -> tuple[str, int] | None:
    """Host and port of a ZeroMQ address of TCP; None for any other."""
    match = TCP_ADDRESS.fullmatch(address)
    return (match[1].strip("[]"), int(match[2])) if match else None
