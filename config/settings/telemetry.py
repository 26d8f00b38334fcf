"""`telemetry`: where metrics and access records are pushed to."""

from __future__ import annotations

import importlib.util
import re
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, model_validator

from config.settings.groups import Group

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_PACKAGE = "opentelemetry.proto"
_OURS = ("content-type", "content-encoding", "content-length", "host", "user-agent", "connection")


def _base_url(text: str) -> str:
    parts = urlsplit(text)
    if not text:
        return text
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment or "@" in text:
        raise ValueError(
            "must be empty, or an http or https URL without user, query and fragment, such as http://127.0.0.1:4318; "
            "/v1/metrics and /v1/logs are appended"
        )
    return text.rstrip("/")


def _header(name: str) -> str:
    if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
        raise ValueError(f"must be the name of a header, and none of {', '.join(_OURS)}")
    return name


def _is_installed() -> bool:
    try:
        return importlib.util.find_spec(_PACKAGE) is not None
    except ModuleNotFoundError:
        return False


class Otlp(Group):
    """`telemetry.otlp`: the OpenTelemetry collector that gets OTLP over HTTP. Without `endpoint` nothing is pushed."""

    endpoint: Annotated[str, AfterValidator(_base_url)] = ""
    headers: dict[Annotated[str, AfterValidator(_header)], SecretStr] = Field(default_factory=dict, max_length=50)
    interval: int = Field(30, ge=1, le=3600)
    timeout: float = Field(10.0, gt=0, le=60)
    metrics: bool = True
    logs: bool = True

    @model_validator(mode="after")
    def _can_be_done(self) -> Self:
        for name, value in self.headers.items():
            if not re.fullmatch(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?", value.get_secret_value()):
                raise ValueError(f"headers.{name}: the value must be printable ASCII")
        if self.endpoint and not _is_installed():
            raise ValueError("endpoint: needs what `pip install 'proxyfleet[otlp]'` installs")
        return self

    def params(self) -> dict[str, Any]:
        """As the actor gets it: plain values with the secrets in them."""
        plain = self.model_dump(mode="json", exclude={"headers"})
        return {**plain, "headers": {name: value.get_secret_value() for name, value in self.headers.items()}}


class Telemetry(Group):
    """`telemetry`."""

    otlp: Otlp = Otlp()
