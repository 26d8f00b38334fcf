"""One POST to the collector: OTLP/HTTP with binary protobuf (opentelemetry.io/docs/specs/otlp).

The resource that the pushes are about stays the same over all restarts.
"""

from __future__ import annotations

import gzip
import json
import socket
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import requests
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from urllib3.exceptions import HTTPError

from actors.net.guarded_adapter import GuardedAdapter
from actors.net.guarded_client import Breakable, within
from config import VERSION
from config.files.durable import replace_file
from config.files.paths import private_directory
from config.settings.groups import Otlp

LOGGED_MAX = 200
"""Bytes of a response that are read and logged."""
RETRIED = (408, 429, 502, 503, 504)
"""Statuses after which the same may be sent again; after any other error it would be rejected again."""


@dataclass(frozen=True, slots=True)
class PushOutcome:
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

    def push(self, signal: str, message: Any) -> PushOutcome:
        """Send a protobuf message of `metrics` or `logs`. Doesn't raise for anything that the collector does.

        It returns after `telemetry.otlp.timeout`, whatever the collector sends.
        """
        url, timeout = f"{self._settings.endpoint}/v1/{signal}", self._settings.timeout
        body = gzip.compress(message.SerializeToString(), 6)
        with within(timeout) as connection:
            try:
                return self._post(url, body, connection)
            except (requests.RequestException, HTTPError, OSError) as error:
                late = connection.broken
                why = f"has not responded within {timeout:g} s" if late else f"can't be reached: {_reason(error)}"
                return PushOutcome(why, again=True)

    def _post(self, url: str, body: bytes, connection: Breakable) -> PushOutcome:
        def connect(host: str, port: int) -> socket.socket:
            return connection.adopt(socket.create_connection((host, port), self._settings.timeout))

        with requests.Session() as session:
            session.trust_env = False
            session.headers["Accept-Encoding"] = "identity"
            for scheme in ("http://", "https://"):
                session.mount(scheme, GuardedAdapter(connect))
            with session.post(
                url,
                data=body,
                headers=self._headers,
                timeout=self._settings.timeout,
                allow_redirects=False,
                stream=True,
            ) as response:
                if connection.broken:  # in the middle of a head, perhaps
                    raise TimeoutError
                return _outcome(response)


def _outcome(response: requests.Response) -> PushOutcome:
    """The status counts; a body that breaks off is not logged."""
    if 200 <= response.status_code < 300:
        return PushOutcome(None)
    try:
        text = response.raw.read(LOGGED_MAX, decode_content=False).decode("utf-8", "replace")
    except (HTTPError, OSError):
        text = ""
    logged = "".join(each if each.isprintable() else " " for each in text).strip()
    return PushOutcome(f"responds {response.status_code} {logged}".strip(), response.status_code in RETRIED)


def _reason(error: BaseException) -> str:
    """The innermost cause, without the addresses of objects that urllib3 puts into its texts."""
    cause: BaseException = error
    while (inner := cause.__cause__ or cause.__context__) is not None:
        cause = inner
    return f"{type(cause).__name__}: {cause}" if not isinstance(cause, OSError) else (cause.strerror or str(cause))


class ResourceIdentity(NamedTuple):
    """Id of this installation, and since when its sums count (Unix seconds)."""

    instance_id: str
    since: float


def read_identity(folder: Path) -> ResourceIdentity:
    """The identity in `folder`, made at the first start. Raises `OSError`, `config.files.paths.PathError`."""
    file = private_directory(folder) / "identity.json"
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        return ResourceIdentity(str(known["instance_id"]), float(known["since"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # none yet, or damaged: make another
        made = ResourceIdentity(str(uuid.uuid4()), time.time())
    replace_file(file, json.dumps({"instance_id": made.instance_id, "since": made.since}).encode())
    return made


def resource_of(identity: ResourceIdentity) -> Any:
    """The resource of all metrics and records."""
    names = {
        "service.name": "proxyfleet",
        "service.version": VERSION,
        "service.instance.id": identity.instance_id,
    }
    return Resource(attributes=attributes(names))


def attributes(values: Mapping[str, Any]) -> list[Any]:
    """As key-value pairs of OTLP."""
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: str | float) -> Any:
    if isinstance(value, str):
        return AnyValue(string_value=value)
    return AnyValue(int_value=value) if isinstance(value, int) else AnyValue(double_value=value)
