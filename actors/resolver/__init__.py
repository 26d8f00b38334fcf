"""The resolver: names to addresses for all forwarding actors of this machine, with one cache.

Read in this order: `actor` is the process, `clients` its socket, `service` what a request goes through: `cache`, then a
`lookup` when `fair_queue` says that it is its turn. A lookup puts questions (`exchange`) to the name servers of its
profile (`profiles`, `servers`, `server_names`), which are reached by `udp`, `stream` (TCP and TLS) or `https`. `wire`
has the messages.
"""
