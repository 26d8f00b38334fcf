"""Client connections on real sockets, and what they become.

`client_connection` drives one protocol session: it executes the session's commands (`command_handlers`, and those whose
outcome comes later in `deferred_handlers`) and reports events to it. `body_relay`, `tunnel`, `udp_association` and
`bind_listener` move bytes; `request_context` is what belongs to one request; `table` lists live connections.
"""
