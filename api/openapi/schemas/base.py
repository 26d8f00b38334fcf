"""What all models of the data of responses share; each module beside this one has the views of one area.

They only describe: no response is built from them. Tests validate every real response against its model, with exactly
its fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Moment = Annotated[str, Field(json_schema_extra={"format": "date-time"})]
"""ISO 8601, UTC."""
Reason = Literal[
    "certificate",
    "upstream_down",
    "upstreams_unreachable",
    "out_of_descriptors",
    "bind_address",
    "accounts_table",
    "list_unreadable",
    "workers",
    "listener",
    "process",
]
"""Why a proxy or an actor is degraded or has failed (`actors.bus.messages.common.REASONS`)."""
HealthState = Literal["healthy", "degraded", "unhealthy"]


class ResponseModel(BaseModel):
    """A part of a response. Later versions may add fields; none is renamed, retyped or removed."""

    model_config = ConfigDict(extra="forbid", defer_build=True)  # few are built before the document is asked for


class Deleted(ResponseModel):
    """A deleted resource."""

    id: str
    deleted: Literal[True]


class Revoked(ResponseModel):
    """A revoked key or credential."""

    id: str
    revoked: Literal[True]


class Message(ResponseModel):
    """A message about the outcome."""

    message: str
