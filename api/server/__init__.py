"""The HTTP server of the management API: waitress, its sockets and limits. Nothing here knows a proxy.

`http_server` composes it, `channel` is one connection, `tasks` one response; `tls_terminator` is the process that
speaks TLS.
"""
