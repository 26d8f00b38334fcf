"""Keys of the WSGI environment by which the server and the application speak to each other."""

from __future__ import annotations

BODY_GATE = "proxyfleet.body_gate"
"""The `api.http.body_limits.BodyGate` of a request with a large body."""
AFTER_RESPONSE = "proxyfleet.after"
"""A function that the server calls when it has written the response."""
