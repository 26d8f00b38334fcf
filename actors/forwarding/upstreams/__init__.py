"""Parent proxies: targets are reached through one of them instead of directly.

```
 Client ── Open ──▶ Upstreams.route ──▶ Route ── chooses (choice.py) ──▶ Attempt ──▶ a connection for the client
                        │                 ▲                                │
                        │                 └── the next parent, as long as ─┘ dial, TLS (stream.py),
                        ▼                     nothing was sent                handshake (connect.py, socks.py)
                     Parent (parent.py): up or down, counters
                        ▲
                     Checks (checks.py): from time to time, by itself
```

Handshakes (`handshake.py`) and choices are without sockets and clocks. Nothing of this is touched by a proxy without
parents.
"""
