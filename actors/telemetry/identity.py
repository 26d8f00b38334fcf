"""The resource of OpenTelemetry that the pushes are about; it stays the same over all restarts."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from config import VERSION
from config.files.durable import replace_file
from config.files.paths import private_directory


class Identity(NamedTuple):
    """Id of this installation, and since when its sums count (Unix seconds)."""

    instance_id: str
    since: float


def read_identity(folder: Path) -> Identity:
    """The identity in `folder`, made at the first start. Raises `OSError`, `config.files.paths.PathError`."""
    file = private_directory(folder) / "identity.json"
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
        return Identity(str(known["instance_id"]), float(known["since"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):  # none yet, or damaged: make another
        made = Identity(str(uuid.uuid4()), time.time())
    replace_file(file, json.dumps({"instance_id": made.instance_id, "since": made.since}).encode())
    return made


def resource_of(identity: Identity) -> Any:
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
