"""Views of the settings and of the audit trail."""

from __future__ import annotations

from typing import Any, Literal

from api.openapi.schemas.base import Moment, ResponseModel
from config.settings.groups import History, Logging
from config.settings.loading import Source
from config.settings.runtime import shows
from config.settings.settings import Auth, ProxyGroup, Server


@shows(Server)
class ServerSettings(ResponseModel):
    """The management API: where it listens, and for how many connections."""

    ssl_enabled: bool


@shows(Logging)
class LoggingSettings(ResponseModel):
    """The log of the service, and the access records that are kept. `output` is the destination of both."""


@shows(Auth)
class AuthSettings(ResponseModel):
    """`session_timeout` in seconds."""

    enabled: Literal[True]


@shows(ProxyGroup)
class ProxyDefaults(ResponseModel):
    """Seconds, seconds, and connections."""


@shows(History)
class HistoryRetention(ResponseModel):
    """How long revisions of the configuration are kept, in days, and how many of them."""


class SystemSettings(ResponseModel):
    """The effective settings."""

    server: ServerSettings
    logging: LoggingSettings
    auth: AuthSettings
    proxy: ProxyDefaults
    history: HistoryRetention


class ConfiguredValue(ResponseModel):
    """What the configuration says of a key; `source` and `place` as in the setting."""

    value: Any
    source: Source
    place: str | None


class SettingSource(ResponseModel):
    """A key of the configuration. `place` is the line of the file, or the variable.

    `change` is what a change of it needs: nothing (`at_once`, by `PATCH /settings`), that the configuration is read
    again (`reload`), or a restart of the product. `configured` is null unless the configuration has another value,
    which an override hides, or which waits for a restart (`waits`).
    """

    key: str
    value: Any
    source: Source
    place: str | None
    change: Literal["at_once", "reload", "restart"]
    waits: bool
    configured: ConfiguredValue | None


class SettingSourceList(ResponseModel):
    """All keys of the configuration, in its order."""

    settings: list[SettingSource]


class RotatedKey(ResponseModel):
    """The new signing key of access tokens, and until when tokens of the previous one are accepted."""

    key_id: str
    previous_accepted_until: Moment


class AuditActor(ResponseModel):
    """The author of a change. `user_id` is the id of the account where its holder has made it."""

    type: Literal["user", "account", "anonymous", "system", "command_line"]
    user_id: str | None
    username: str | None
    role: str | None


class AuditCredential(ResponseModel):
    """The credential of the author; `id` is that of the API key or of the sign-in, `name` that of the key."""

    method: Literal["bearer", "basic", "api_key", "password", "oauth2", "cookie", "account_token"]
    id: str | None
    name: str | None = None


class AuditResource(ResponseModel):
    """The changed resource."""

    type: str
    id: str | None
    name: str | None


class AuditEntry(ResponseModel):
    """An entry; for an update, `before` and `after` are the parts that differ, without secrets."""

    seq: int
    timestamp: Moment
    action: str
    outcome: Literal["done", "failed"]
    actor: AuditActor
    credential: AuditCredential | None
    address: str | None
    request_id: str | None
    operation: str | None
    resource: AuditResource | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    details: dict[str, Any] | None
    hash: str


class AuditHead(ResponseModel):
    """The last entry of the trail."""

    seq: int
    hash: str


class BrokenEntry(ResponseModel):
    """The first entry that is not what was written, and why."""

    seq: int
    error: str


class AuditVerification(ResponseModel):
    """Whether the chain is intact, with its number of entries and its head; or where it is broken."""

    intact: bool
    entries: int | None
    head: AuditHead | None
    broken: BrokenEntry | None


class AuditTrail(ResponseModel):
    """Entries, newest first."""

    audit: list[AuditEntry]
    total: int
    has_more: bool
    next_cursor: str | None
    head: AuditHead
