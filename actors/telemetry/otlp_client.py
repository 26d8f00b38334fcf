"""One POST to the collector: OTLP/HTTP with binary protobuf (opentelemetry.io/docs/specs/otlp).

The resource that the pushes are about stays the same over all restarts.
"""

from __future__ import annotations

import gzip
import json
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from actors.net.guarded_client import HttpClient, HttpResponse, RequestFailed, guarded
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
    """The collector at `telemetry.otlp.endpoint`. Thread-safe; nothing is kept between pushes."""

    def __init__(self, settings: Otlp) -> None:
        self._settings = settings
        self._headers = {
            **{name: value.get_secret_value() for name, value in settings.headers.items()},
            "Accept-Encoding": "identity",
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
        client = HttpClient(guarded(None), timeout, authorities=DEFAULT_CA_BUNDLE_PATH)
        try:
            with client.request("POST", url, self._headers, body) as response:
                return _outcome(response)
        except RequestFailed as failure:
            late = f"has not responded within {timeout:g} s"
            return PushOutcome(late if failure.late else f"can't be reached: {failure}", again=True)


def _outcome(response: HttpResponse) -> PushOutcome:
    """The status counts; a body that breaks off is not logged."""
    if 200 <= response.status < 300:
        return PushOutcome(None)
    try:
        text = response.beginning(LOGGED_MAX).decode("utf-8", "replace")
    except RequestFailed:
        text = ""
    logged = "".join(each if each.isprintable() else " " for each in text).strip()
    return PushOutcome(f"responds {response.status} {logged}".strip(), response.status in RETRIED)


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
