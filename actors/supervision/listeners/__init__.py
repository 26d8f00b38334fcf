"""Listening sockets, which the supervisor binds and passes to actors, so that a restart of one refuses no connection.

`registry` holds those of the proxies, with the states of a group of them. `bind` makes a socket, also that of the
management API, and resolves the names that sockets are bound to. `socket_activation` has the sockets that systemd or a
predecessor passed, `descriptor_store` the copies that systemd keeps.
"""
