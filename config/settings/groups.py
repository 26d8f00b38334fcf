"""Groups of the settings that processes besides the API and the supervisor read, by way of `actors.process`."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, StrictStr, model_validator

from config.model.choices import LogLevel
from config.text.access_fields import FILE_FORMATS, FORMATS, LINE_FIELDS, compiled

RetryDelay = Annotated[float, Field(ge=0, le=30 * 86_400)]


class SettingsGroup(BaseModel):
    """A group of keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


@dataclass(frozen=True, slots=True)
class Live:
    """Marks a setting that the API shows and changes while the product runs (`config.settings.runtime`).

    A request has to give the type of the setting exactly, or `request` in its place.
    """

    request: Any = None


OUTPUTS = ("stderr", "stdout", "journald", *FILE_FORMATS)
"""Values of `logging.output`; a format, a colon and an absolute path is another one, in the configuration alone."""
_OUTPUT_FILE = re.compile(rf"(?:{'|'.join(FILE_FORMATS)}):/[^\0]+")
_OUTPUT_PATTERN = rf"^({'|'.join(OUTPUTS)}|({'|'.join(FILE_FORMATS)}):/[^\x00]{{1,4096}})$"


def good_output(text: str) -> str:
    """A good value of `logging.output`. Raises `ValueError`."""
    if text not in OUTPUTS and not _OUTPUT_FILE.fullmatch(text):
        formats = ", ".join(FILE_FORMATS)
        raise ValueError(f"must be one of {', '.join(OUTPUTS)}; or one of {formats}, a colon and an absolute path")
    return text


_REQUESTED_OUTPUT = Annotated[
    StrictStr, AfterValidator(good_output), Field(json_schema_extra={"pattern": _OUTPUT_PATTERN})
]


def good_template(text: str) -> str:
    """A good value of `logging.template`. Raises `ValueError`."""
    compiled(text, LINE_FIELDS)
    return text


class Logging(SettingsGroup):
    """`logging`: the product's own log (`level`, `format`) and the access records (`access`, `retention_…`).

    `errors` are the records of requests that failed or were refused.
    `output` is where the log goes, and where records go beside their index; `template` is how its format `template`
    writes a record (`config.text.access_fields`). Records are kept for `retention_days`, and
    as many of them as fit into `retention_size` bytes; 0: any number.
    """

    level: Annotated[LogLevel, Live()] = "info"
    access: Annotated[Literal["all", "errors", "off"], Live()] = "all"
    format: Annotated[Literal["text", "json"], Live()] = "text"
    output: Annotated[str, AfterValidator(good_output), Live(_REQUESTED_OUTPUT)] = "stderr"
    template: Annotated[str, Field(min_length=1, max_length=4096), AfterValidator(good_template)] = FORMATS["squid"]
    retention_days: int = Field(30, ge=1, le=3650)
    retention_size: int = Field(20 * 1024**3, ge=0, le=2**60)


class History(SettingsGroup):
    """`history`: revisions of the configuration. They are kept for `retention_days`, and `max_revisions` of them."""

    retention_days: Annotated[int, Field(ge=1, le=3650), Live()] = 90
    max_revisions: Annotated[int, Field(ge=1, le=1_000_000), Live()] = 10_000


class Alerts(SettingsGroup):
    """`alerts`: when the errors of a proxy are an event. Percent of at least `min_requests` in `window` seconds.

    `quota_warning` is the part of an account's quota, in percent, that is an event; 0 for none.
    """

    error_rate: float = Field(10.0, gt=0, le=100)
    error_rate_recovered: float = Field(5.0, ge=0, le=100)
    min_requests: int = Field(20, ge=1)
    window: int = Field(300, ge=10, le=86_400)
    quota_warning: float = Field(80.0, ge=0, lt=100)

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if self.error_rate_recovered > self.error_rate:
            raise ValueError("error_rate_recovered must not be above error_rate")
        return self


class WebhookSettings(SettingsGroup):
    """`webhooks`: how events are delivered. Seconds, but `retention_days`."""

    allow_private: bool = False
    timeout: float = Field(15.0, gt=0, le=300)
    retry_schedule: tuple[RetryDelay, ...] = Field(
        (5, 300, 1_800, 7_200, 18_000, 36_000, 50_400, 72_000, 86_400), max_length=100
    )
    max_concurrent: int = Field(32, ge=1, le=500)
    retention_days: int = Field(30, ge=1, le=3650)


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


class Otlp(SettingsGroup):
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


class Telemetry(SettingsGroup):
    """`telemetry`."""

    otlp: Otlp = Otlp()
