"""Client connections on real sockets, and what they become.

`client_connection` drives one protocol session: it executes the session's commands (`command_handlers`: `authorizing`
says who asks, `opening` and `upstream_handlers` open what is wanted), reports events to it, and moves bytes
(`client_io`). `first_bytes` comes before it; `tunnel`, with `tls_name_gate`, `udp_association` and `bind_listener` are
what comes after. `table` lists live connections.
"""
