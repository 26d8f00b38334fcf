"""What each response says to browsers and caches: nothing is kept, and nothing is embedded elsewhere."""

from __future__ import annotations

import re

import pytest

from api.app import OPERATIONS
from api.server.tasks import spelled
from tests.kit.api_stage import Api


@pytest.mark.parametrize("known", [True, False], ids=["an administrator", "a stranger"])
def test_no_cache_keeps_a_response_and_no_other_site_can_embed_one(api: Api, known: bool) -> None:
    wrong = []
    for operation in OPERATIONS:
        path = re.sub(r"\{[a-z_]+\}", "nothing", operation.path)
        found = api.client.simulate_request(operation.method, path, headers=api.token() if known else {}).headers
        said = found.get("Cache-Control"), found.get("Cross-Origin-Resource-Policy"), found["X-Content-Type-Options"]
        if said not in [("no-store", "same-origin", "nosniff"), ("no-cache", "same-origin", "nosniff")]:
            wrong.append((operation.id, said))
    assert wrong == []


def test_fields_are_spelled_as_their_specifications_write_them() -> None:
    head = b"HTTP/1.1 200 OK\r\nEtag: etag: 7\r\nWww-Authenticate: Basic\r\nX-Ratelimit-Limit: 9\r\nX-Etag: 1\r\n\r\n"
    assert spelled(head) == (
        b"HTTP/1.1 200 OK\r\nETag: etag: 7\r\nWWW-Authenticate: Basic\r\nX-RateLimit-Limit: 9\r\nX-Etag: 1\r\n\r\n"
    )
