"""Sockets and addresses that actors and the API share. Nothing here knows a proxy.

`proxy_protocol` and `socks_wire` are formats; `transport`, `tls_stream` and `send_buffer` make a plain socket and TLS
alike for non-blocking code; `egress_guard` decides which addresses may be connected to, with
`this_machine`; `guarded_client` makes the product's own HTTP requests behind it; `accepting` accepts
connections.
"""
