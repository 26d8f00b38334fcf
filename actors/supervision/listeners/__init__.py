"""Listening sockets, which the supervisor binds and hands to actors, so that a restart of one refuses no connection.

`registry` holds those of proxies, `api` that of the management API; `socket_activation` takes those that systemd or a
predecessor passed, `hostname` resolves the names that listeners are bound to.
"""
