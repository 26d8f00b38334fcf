"""Whatever a client sends: a response of the contract, never a 500."""

from __future__ import annotations

import functools
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.kit.api_stage import PROXY, Api, check_envelope

pytestmark = pytest.mark.embedded  # one API serves all examples of several tests

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
NAMES = ["name", "port", "protocol", "host", "auth", "settings", "tags", "status", "username", "password", "url"]
NEARLY = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6)
FUZZ = settings(suppress_health_check=list(HealthCheck))
PATHS = ["/proxies", "/users", "/api-keys", "/auth/login", "/auth/refresh"]


@functools.cache
def shared() -> Api:
    """One API for all examples; it is only ever asked for what it refuses or allows."""
    return Api()


@FUZZ
@given(path=st.sampled_from(PATHS), body=JSON | NEARLY)
def test_any_json_gets_a_response_of_the_contract(path: str, body: Any) -> None:
    api = shared()
    response = api.post(path, body, api.token())
    assert response.status_code in (200, 201, 400, 401, 429)


@FUZZ
@given(fields=NEARLY)
def test_a_create_with_altered_fields_is_201_or_400(fields: dict[str, Any]) -> None:
    api = shared()
    assert api.post("/proxies", {**PROXY, **fields}, api.token()).status_code in (201, 400)


@FUZZ
@given(content=st.binary(max_size=200))
def test_any_bytes_as_a_body_are_400(content: bytes) -> None:
    api = shared()
    headers = {**api.token(), "Content-Type": "application/json"}
    response = api.client.simulate_post("/api/v1/proxies", body=content, headers=headers)
    check_envelope(response)
    assert response.status_code == 400


@FUZZ
@given(query=st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60))
def test_any_query_is_200_or_400(query: str) -> None:
    api = shared()
    for path in ("/api/v1/proxies", "/api/v1/users"):
        response = api.client.simulate_get(path, query_string=query.lstrip("?"), headers=api.token())
        assert response.status_code in (200, 400)


@FUZZ
@given(
    header=st.sampled_from(["Authorization", "X-API-Key", "If-Match", "Accept", "X-Request-Id", "X-Forwarded-For"]),
    text=st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=60),
)
def test_any_header_gets_a_response_of_the_contract(header: str, text: str) -> None:
    api = shared()
    response = api.client.simulate_patch("/api/v1/proxies/prx_none", json={}, headers={**api.token(), header: text})
    assert response.status_code in (401, 404, 406)
