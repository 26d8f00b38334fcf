"""The part of the settings that the API needs."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from pydantic import BaseModel

from config.settings.groups import History as HistorySettings
from config.settings.groups import Logging, WebhookSettings
from config.settings.settings import AccountSettings, Auth, ProxyGroup, Security, Server

OF_MACHINES = frozenset({"server", "logging.output", "proxy.public_name"})
"""Settings that belong to each node of a fleet; the others have to be the same."""


@dataclass(frozen=True)
class ApiSettings:
    """What requests and services read."""

    server: Server = field(default_factory=Server)
    logging: Logging = field(default_factory=Logging)
    auth: Auth = field(default_factory=Auth)
    proxy: ProxyGroup = field(default_factory=ProxyGroup)
    security: Security = field(default_factory=Security)
    accounts: AccountSettings = field(default_factory=AccountSettings)
    prometheus_token_hash: str | None = None
    webhooks: WebhookSettings = field(default_factory=WebhookSettings)
    history: HistorySettings = field(default_factory=HistorySettings)
    whole: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """All settings as received, those of other actors too; with a secret in them."""

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> ApiSettings:
        """From what `config.settings.settings.plain` gives."""
        kinds: dict[str, type[BaseModel]] = {
            "server": Server, "logging": Logging, "auth": Auth, "proxy": ProxyGroup, "security": Security,
            "accounts": AccountSettings, "webhooks": WebhookSettings,
            "history": HistorySettings,
        }  # fmt: skip
        groups: dict[str, Any] = {name: kind.model_validate(plain.get(name, {})) for name, kind in kinds.items()}
        return cls(prometheus_token_hash=plain.get("prometheus_token_hash"), whole=plain, **groups)

    def plain(self) -> dict[str, Any]:
        """The inverse of `from_plain`."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self) if each.name != "whole"}

    def digests(self) -> dict[str, str]:
        """Digests of what must be the same on all nodes of a fleet, by key, where it is not the default. No secret."""
        usual, found = ApiSettings().plain(), {}
        for group, values in self.plain().items():
            for key, value in values.items() if isinstance(values, dict) and group not in OF_MACHINES else ():
                name = f"{group}.{key}"
                if name not in OF_MACHINES and value != usual[group].get(key):
                    text = json.dumps(value, sort_keys=True)
                    found[name] = hashlib.sha256(text.encode()).hexdigest()[:6]
        return found

    def is_prometheus_token(self, given: str) -> bool:
        """Whether `given` is `metrics.prometheus_token`."""
        digest = hashlib.sha256(given.encode("utf-8", "surrogateescape")).hexdigest()
        return self.prometheus_token_hash is not None and hmac.compare_digest(digest, self.prometheus_token_hash)


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
