"""Options and values that accounts, plans and credentials share."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from api.cli.errors import CommandError, Status
from api.cli.quantities import SIZE_EXAMPLES, size_of
from api.cli.time_options import from_now

QUOTA = Annotated[
    str | None,
    typer.Option(
        "--quota",
        metavar="SIZE",
        help=f"Bytes in both directions in each period ({SIZE_EXAMPLES}); 0 for no limit.",
    ),
]
PERIOD = Annotated[
    Literal["day", "week", "month", "total"] | None, typer.Option("--period", help="The period of the quota.")
]
CONNECTIONS = Annotated[
    int | None, typer.Option("--connections", min=0, help="At the same time on each proxy; 0 for no limit.")
]
EXPIRES = Annotated[
    str | None, typer.Option("--expires", help="When it expires: 30d from now, or a date and time (UTC).")
]


def parsed(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields with sizes as bytes and spans as moments. Raises `CommandError`."""
    quota, expires = fields.get("quota.bytes"), fields.get("expires_at")
    found = dict(fields)
    if quota is not None:
        found["quota.bytes"] = bytes_of(quota)
    if expires:
        found["expires_at"] = from_now(expires)
    return found


def bytes_of(quota: str) -> int:
    """The value of `--quota`. Raises `CommandError`."""
    try:
        return size_of(quota)
    except ValueError as error:
        raise CommandError(f"--quota {quota!r}: {error}", status=Status.USAGE) from error
