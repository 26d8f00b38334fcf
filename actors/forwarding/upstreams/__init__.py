"""Upstream proxies: targets are reached through one of them instead of directly.

```
 client connection ── Open ──▶ UpstreamSet.route ──▶ Route ── chooses (balancing.py) ──▶ Attempt ──▶ a connection
                                   │                   ▲                                   │
                                   │                   └── the next, as long as nothing ───┘ dial, TLS (tls_client.py),
                                   ▼                       was sent                          handshake (handshake.py,
                               Upstream (../upstream.py): up or down, counters               http_connect.py,
                                   ▲                                                         socks_connect.py)
                               HealthChecks (health_checks.py): periodic
```

Handshakes and balancing have no sockets and no clock. A proxy without upstreams imports none of this
package but `session_username`.
"""
