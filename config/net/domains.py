"""Entries of lists of domains, read from text. Light to import."""

from __future__ import annotations

from config.net.host_names import is_host_name


def read_domain(text: str) -> str:
    """A domain in lower case, without a dot at its end; it stands for itself and all below. Raises `ValueError`."""
    name = text.lower().removesuffix(".")
    if text.startswith(("*.", ".")):
        raise ValueError("must be the domain alone: it matches itself and every name below it")
    if not text.isascii() or not is_host_name(name):
        raise ValueError("must be a domain like example.com, in ASCII (an IDN begins with xn--)")
    return name
