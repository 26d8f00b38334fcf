"""What a user would write instead: a FastAPI application over a dictionary, run by uvicorn.

It runs in an environment of its own. Variables say how many proxies there are (`BENCH_PROXIES`) and the API key
(`BENCH_KEY`).
"""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from typing import Annotated, Generic, TypeVar

from fastapi import Depends, FastAPI, Header, HTTPException, Query
from pydantic import BaseModel

T = TypeVar("T")


class Settings(BaseModel):
    """How a proxy forwards."""

    timeout: int = 30
    keep_alive: bool = True
    max_connections: int = 1000


class Stats(BaseModel):
    """What a proxy has done."""

    total_requests: int = 0
    active_connections: int = 0
    uptime: str = "0m"
    bytes_transferred: str = "0.00 B"
    last_request: datetime | None = None


class ProxyListed(BaseModel):
    """The list form."""

    id: str
    name: str
    host: str
    port: int
    protocol: str
    status: str
    auth_enabled: bool = False
    tags: list[str]
    created_at: datetime
    updated_at: datetime
    stats: Stats = Stats()


class Proxy(ProxyListed):
    """The detail form."""

    settings: Settings


class Page(BaseModel):
    """A page of proxies and where it is."""

    proxies: list[ProxyListed]
    pagination: dict[str, int | bool]


class One(BaseModel):
    """One proxy."""

    proxy: Proxy


class Envelope(BaseModel, Generic[T]):
    """The body of every success."""

    success: bool = True
    data: T


def _new(number: int) -> Proxy:
    now = datetime.now(UTC)
    name, listen = f"configured-{number}", {"host": "127.0.0.1", "port": 1 + number % 65535, "protocol": "http"}
    more = {"status": "inactive", "tags": [], "created_at": now, "updated_at": now, "settings": Settings()}
    return Proxy(id=f"prx_{number:016x}", name=name, **listen, **more)


app = FastAPI()
proxies: dict[str, Proxy] = {proxy.id: proxy for proxy in map(_new, range(int(os.environ["BENCH_PROXIES"])))}
keys = {hashlib.sha256(os.environ["BENCH_KEY"].encode()).hexdigest(): "admin"}


async def caller(x_api_key: Annotated[str, Header()] = "") -> str:
    """Who asks; 401 for an unknown key."""
    name = keys.get(hashlib.sha256(x_api_key.encode()).hexdigest())
    if name is None:
        raise HTTPException(401)
    return name


@app.get("/api/v1/proxies", dependencies=[Depends(caller)])
async def list_proxies(
    page: Annotated[int, Query(ge=1)] = 1, per_page: Annotated[int, Query(ge=1, le=100)] = 50, status: str | None = None
) -> Envelope[Page]:
    """A page of them."""
    found = [proxy for proxy in proxies.values() if status in (None, proxy.status)]
    pages = max(1, -(-len(found) // per_page))
    pagination = {"page": page, "per_page": per_page, "total": len(found), "pages": pages}
    whereabouts = {**pagination, "has_next": page < pages, "has_prev": page > 1}
    return Envelope(data=Page(proxies=found[(page - 1) * per_page : page * per_page], pagination=whereabouts))


@app.get("/api/v1/proxies/{proxy_id}", dependencies=[Depends(caller)])
async def get_proxy(proxy_id: str) -> Envelope[One]:
    """One of them."""
    if proxy_id not in proxies:
        raise HTTPException(404)
    return Envelope(data=One(proxy=proxies[proxy_id]))
