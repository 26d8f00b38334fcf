"""Keys of the WSGI environment that the server and the application share."""

from __future__ import annotations

BODY_GATE = "proxyfleet.body_gate"
"""The `api.http.body_limits.BodyGate` of a request with a large body."""
