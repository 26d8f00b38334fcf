"""HTTP/1.1 and 1.0 as a forward proxy speaks it (RFC 9110, 9112), without sockets."""
