"""The forwarding actor: one process for one proxy. Decisions in Python, bytes in the kernel.

Read in this order; each imports only what is above it, which a contract of `pyproject.toml` keeps:

- `protocols`: sans-IO sessions. Bytes and events go in, `commands` come out.
- `isolation`: for whom a name is resolved or a password checked; an unforeseen exception ends one connection and not
  the process.
- `limits`: token buckets, throttles and meters of connections, accounts with their quotas.
- `policies`: ordered rules about requests, loaded only where there are some.
- `access`: which clients, users and targets are allowed.
- `net`: from a name to a connected, checked socket; the pool of idle ones; `splice(2)` between two; the timer wheel.
- `proxy_policy`: what a configuration says about connections and requests.
- `upstreams`: from a name to a connection through upstream proxies.
- `reporting` and `stats`: counters, usage and access records.
- `open_connections`: what all kinds of open connections have in common, and what becomes of them.
- `context`: what the connections of the process share, and how a configuration takes effect.
- `decision`: whether a request may be made and which way it goes, in one order for all who ask.
- `connections`: client connections, tunnels and UDP associations on real sockets.
- `acceptor`: accepts and rejects clients; `explain`: what would happen to a request.
- `actor`: composes the process, and drains it.
"""
