"""One reading only: whatever two of llhttp, h11 and CPython read differently is refused (RFC 9112)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.differential import check_requests, check_response
from tests.conformance.smuggling import REQUESTS, RESPONSES, SPOILED_REQUESTS, SPOILED_RESPONSES
from tests.kit.tables import table

METHODS = ["GET", "HEAD"]


@table("name", REQUESTS)
def test_a_request_that_is_taken_is_one_message_to_everybody(name: str) -> None:
    check_requests(REQUESTS[name])


@table("method", METHODS)
@table("name", RESPONSES)
def test_an_answer_that_is_passed_on_is_one_message_to_everybody(name: str, method: str) -> None:
    check_response(RESPONSES[name], method)


@settings(max_examples=200)
@given(SPOILED_REQUESTS)
def test_spoiled_requests_are_taken_in_one_reading_or_not_at_all(data: bytes) -> None:
    check_requests(data)


@settings(max_examples=200)
@given(SPOILED_RESPONSES, st.sampled_from(METHODS))
def test_spoiled_answers_are_passed_on_in_one_reading_or_not_at_all(data: bytes, method: str) -> None:
    check_response(data, method)
