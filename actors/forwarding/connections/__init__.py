"""Client connections on real sockets, and what they become.

`client_connection` drives one protocol session: it executes the session's commands (`command_handlers`, those whose
outcome comes later in `deferred_handlers`, and `upstream_handlers`), reports events to it, and moves bytes
(`client_io`). `tunnel`, `udp_association` and `bind_listener` move bytes; `request_context` is what
belongs to one request; `table` lists live connections.
"""
