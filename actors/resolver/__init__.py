"""The resolver: names to addresses for all forwarding actors of this machine, with one cache.

Read in this order: `actor` is the process with its socket, `service` what a request goes through: the cache, then a
lookup when `fair_queue` says that it is its turn. A lookup puts `questions` to the name servers of its profile
(`profiles`, `servers`), which are reached by `stream` (UDP, TCP and TLS) or `https`. `wire` has the messages.
"""
