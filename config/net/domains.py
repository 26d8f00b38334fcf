"""Entries of lists of domains, read from text, and names of other letters than ASCII. Light to import."""

from __future__ import annotations

from config.net.host_names import is_host_name

_LONGEST = 254


def read_domain(text: str) -> str:
    """A domain in lower case, without a dot at its end; it stands for itself and all below. Raises `ValueError`."""
    name = text.lower().removesuffix(".")
    if text.startswith(("*.", ".")):
        raise ValueError("must be the domain alone: it matches itself and every name below it")
    if not text.isascii() or not is_host_name(name):
        raise ValueError("must be a domain like example.com, in ASCII (an IDN begins with xn--)")
    return name


def in_a_labels(text: str) -> str:
    """An entry as people may write it, with the letters of its name in A-labels (RFC 5890). Raises `ValueError`.

    `*.b\u00fccher.example:443` becomes `*.xn--bcher-kva.example:443`; what is ASCII stays. Letters are mapped as
    browsers do (UTS 46), and never compared by their looks: a Cyrillic letter makes another name than a Latin one.
    """
    if text.isascii():
        return text
    host, colon, ports = text.partition(":")
    name = host.removeprefix("*.")
    return host[: len(host) - len(name)] + _a_labels(name) + colon + ports


def _a_labels(name: str) -> str:
    if name.isascii():
        return name
    import idna  # tables of Unicode, which only such names need

    try:
        found = idna.encode(name, uts46=True).decode("ascii") if len(name) <= _LONGEST else ""
    except UnicodeError:
        found = ""
    if not is_host_name(found.removesuffix(".")):
        raise ValueError("is no name that a domain can have")
    return found
