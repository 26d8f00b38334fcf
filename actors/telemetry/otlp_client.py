"""One POST to the collector: OTLP/HTTP with binary protobuf (opentelemetry.io/docs/specs/otlp)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import Any

import requests

from config import VERSION
from config.settings.telemetry import Otlp

LOGGED_MAX = 200
"""Characters of a response that are logged."""
RESPONSE_MAX = 65_536
RETRIED = (408, 429, 502, 503, 504)
"""Statuses after which the same may be sent again; after any other error it would be rejected again."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a push: `error` None when it was accepted. `again`: the same may be sent once more."""

    error: str | None
    again: bool = False


class Collector:
    """The collector at `telemetry.otlp.endpoint`. Used by one thread at a time; nothing is kept between pushes."""

    def __init__(self, settings: Otlp) -> None:
        self._settings = settings
        self._headers = {
            **{name: value.get_secret_value() for name, value in settings.headers.items()},
            "Content-Type": "application/x-protobuf",
            "Content-Encoding": "gzip",
            "User-Agent": f"Proxyfleet/{VERSION}",
        }

    def push(self, signal: str, message: Any) -> Outcome:
        """Send a protobuf message of `metrics` or `logs`. Doesn't raise for anything that the collector does."""
        url = f"{self._settings.endpoint}/v1/{signal}"
        body = gzip.compress(message.SerializeToString(), 6)
        try:
            with requests.Session() as session:
                session.trust_env = False
                session.headers["Accept-Encoding"] = "identity"
                with session.post(
                    url,
                    data=body,
                    headers=self._headers,
                    timeout=self._settings.timeout,
                    allow_redirects=False,
                    stream=True,
                ) as response:
                    return _outcome(response)
        except requests.RequestException as error:
            return Outcome(f"can't be reached: {_reason(error)}", again=True)


def _outcome(response: requests.Response) -> Outcome:
    if 200 <= response.status_code < 300:
        return Outcome(None)
    text = response.raw.read(RESPONSE_MAX, decode_content=False).decode("utf-8", "replace")
    logged = "".join(each if each.isprintable() else " " for each in text)[:LOGGED_MAX].strip()
    return Outcome(f"responds {response.status_code} {logged}".strip(), response.status_code in RETRIED)


def _reason(error: requests.RequestException) -> str:
    """The innermost cause, without the addresses of objects that urllib3 puts into its texts."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return f"{type(cause).__name__}: {cause}" if not isinstance(cause, OSError) else (cause.strerror or str(cause))
