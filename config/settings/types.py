"""Kinds of values that several settings have, each with what is refused of it, and why, as a sentence."""

from __future__ import annotations

import re
from functools import reduce
from ipaddress import ip_address, ip_network
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from config.net.tcp_address import TCP_ADDRESS

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def _network(text: str) -> str:
    ip_network(text, strict=False)
    return text


def _egress_exception(text: str) -> str:
    """A network, or a name (`*.` for all below it)."""
    if "/" in text or ":" in text or re.fullmatch(r"[0-9.]+", text):
        return _network(text)
    if not re.fullmatch(r"(\*\.)?[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?", text):
        raise ValueError("must be a CIDR, an address or a host name, perhaps with a leading '*.'")
    return text


def _publish_address(text: str) -> str:
    """A ZeroMQ address of this machine."""
    match = TCP_ADDRESS.fullmatch(text)
    if text and (match is None or int(match[2]) > 65535 or not _is_address(match[1])):
        raise ValueError(
            "must be empty, or tcp:// with an address of this machine (127.0.0.1, [::1]) and a port, where 0 is any "
            "that is free"
        )
    return text


def _is_address(text: str) -> bool:
    try:
        return ip_address(text.strip("[]")).version == (6 if text.startswith("[") else 4)
    except ValueError:
        return False


def _curve_key(text: str) -> str:
    """A public key as ZeroMQ writes it (Z85, RFC 32): 32 bytes as 40 characters."""
    groups = [text[place : place + 5] for place in range(0, len(text), 5)]
    values = [reduce(lambda sum_, each: sum_ * 85 + _Z85.find(each), group, 0) for group in groups]
    if len(text) != 40 or any(each not in _Z85 for each in text) or max(values) >= 1 << 32:
        raise ValueError(
            "must be a public CURVE key in Z85: 40 characters; `scripts/watch-metrics --new-key` makes one"
        )
    return text


def _web_url(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be an absolute http or https URL")
    return text


_URL = re.compile(r"https?://[!#$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~]{1,1000}")
_MAIL = re.compile(r"[!#$%'*+\-./0-9=A-Z^_`a-z{|}~]{1,64}@[0-9A-Za-z-]{1,63}(?:\.[0-9A-Za-z-]{1,63}){0,8}")


def _contact(text: str) -> str:
    """Where people ask, as clients of proxies are sent it."""
    if not _MAIL.fullmatch(text) and not (_URL.fullmatch(text) and _has_host(text)):
        without = " without mailto:" if text[:7].lower() == "mailto:" else ""
        raise ValueError(f"must be an absolute http or https URL, or a mail address{without}")
    return text


def _has_host(url: str) -> bool:
    try:
        return bool(urlsplit(url).hostname)
    except ValueError:
        return False


def _listen_host(text: str) -> str:
    if re.fullmatch(r"[0-9.]+", text):
        ip_address(text)
    elif not re.fullmatch(r"[A-Za-z0-9_.:%-]+", text):
        raise ValueError("must be an IP address or a host name of this machine")
    return text


ListenHost = Annotated[str, AfterValidator(_listen_host)]
EgressException = Annotated[str, AfterValidator(_egress_exception)]
Contact = Annotated[str, AfterValidator(_contact)]
WebUrl = Annotated[str, AfterValidator(_web_url)]
PublishAddress = Annotated[str, AfterValidator(_publish_address)]
CurveKey = Annotated[str, AfterValidator(_curve_key)]
Network = Annotated[str, AfterValidator(_network)]
Port = Annotated[int, Field(ge=1, le=65535)]
Seconds = Annotated[int, Field(ge=1)]
