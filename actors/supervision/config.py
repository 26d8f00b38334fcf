"""The settings that concern actors, as the supervisor gets them at its start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from config.net.tcp_address import tcp_parts
from config.settings.settings import Settings, plain


@dataclass(frozen=True, slots=True)
class SupervisionConfig:
    """The settings that concern actors; `services` are the product's own addresses besides proxies.

    `private_backends`: authentication back ends may have addresses that are not public.
    `groups` are the settings as actors get them, some with secrets; each actor gets those of its `ActorSpec` alone.
    """

    drain_timeout: float
    upgrade_drain: float
    egress_policy: str
    egress_allow: tuple[str, ...]
    upstreams_allow: tuple[str, ...] | None
    services: tuple[tuple[str, int], ...]
    private_backends: bool
    groups: dict[str, Any]

    @classmethod
    def of(cls, settings: Settings, api: tuple[str, int]) -> SupervisionConfig:
        """With the API bound at `api`. Where metrics are published with port 0, the collector reports its port."""
        published = tcp_parts(settings.metrics.publish)
        return cls(
            settings.server.drain_timeout,
            settings.server.upgrade_drain,
            settings.proxy.egress_guard,
            settings.proxy.egress_allow,
            settings.proxy.upstreams_allow,
            (api, published) if published and published[1] else (api,),
            settings.webhooks.allow_private,
            {**plain(settings), "telemetry": {"otlp": settings.telemetry.otlp.params()}},
        )
