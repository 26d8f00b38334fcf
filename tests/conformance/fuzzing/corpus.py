"""The corpus in the repository: a folder for each target, a file for each input."""

from __future__ import annotations

from pathlib import Path

CORPUS = Path(__file__).parent.parent / "corpus"
FOUND = "found-"
"""How the names of inputs begin that once failed; they are kept whatever they cover."""

NAMES = (
    "http_requests",
    "http_responses",
    "chunked_bodies",
    "targets",
    "socks4",
    "socks5",
    "datagrams",
    "proxy_protocol",
    "client_hellos",
    "bus",
)
"""The targets."""
