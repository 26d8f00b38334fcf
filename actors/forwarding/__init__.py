"""The forwarding actor: one process for one proxy. Decisions in Python, bytes in the kernel.

Read in this order; each imports only what is above it:

- `protocols`: sans-IO sessions. Bytes and events go in, `commands` come out.
- `isolation`: an unforeseen exception ends one connection and not the process.
- `limits`: token buckets, throttles and meters of connections, accounts with their quotas.
- `access`: which clients, users and targets are allowed.
- `net`: from a name to a connected, checked socket; the pool of idle ones; `splice(2)` between two; the timer wheel.
- `upstreams`: the same through upstream proxies.
- `reporting` and `stats`: counters, usage and access records.
- `context`: what the connections of the process share, and how a configuration takes effect (`proxy_policy`).
- `connections`: client connections, tunnels and UDP associations on real sockets; `connection` is what they have in
common.
- `acceptor`: accepts and rejects clients; `explain`: what would happen to a request.
- `actor`: composes the process, and drains it.
"""
