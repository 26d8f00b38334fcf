"""Upstream proxies: targets are reached through one of them instead of directly.

```
 client connection ── Open ──▶ UpstreamSet.route ──▶ Route ── chooses (balancing.py) ──▶ Attempt ──▶ a connection
                                   │                   ▲                                   │
                                   │                   └── the next, as long as nothing ───┘ dial, TLS,
                                   ▼                       was sent                          handshake (handshake.py,
                               Upstream (actors/pools/upstream.py): up or down            http_connect.py,
                                   ▲                                                         socks_connect.py)
                               HealthChecks (health_checks.py): periodic
```

Those of a pool (`pool_upstream_set.py`) keep their state in a file that all processes share, and
say what is tried again. `upstream_sets.py` has all sets of a proxy.

Handshakes and balancing have no sockets and no clock. The zygote has all of it loaded, for all proxies;
one without upstreams runs none of it.
"""
