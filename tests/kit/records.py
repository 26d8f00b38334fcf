"""Access records for tests, and the noon at which they happened."""

from __future__ import annotations

from actors.logs.record_schema import empty_record

NOON = 1_800_000_000.0 - 1_800_000_000 % 86_400 + 43_200


def row(number: int, **fields: object) -> tuple[object, ...]:
    """One access record whose port tells its number."""
    values: dict[str, object] = empty_record()
    values |= {"timestamp": NOON, "level": "info", "proxy_id": "p", "target_url": f"host:{number}", "status_code": 200}
    return tuple({**values, **fields}.values())
