"""Sockets and addresses that actors and the API share. Nothing here knows a proxy.

`proxy_protocol` and `socks_wire` are formats; `transport`, `tls_stream` and `send_buffer` make a plain socket and TLS
alike for non-blocking code; `tls_tickets` has the keys by which sessions of TLS are resumed; `egress_guard` decides
which addresses may be connected to, with `local_addresses`; `own_requests` and `guarded_pools` put the product's own
HTTP requests behind it; `listener_drain` closes a listener without resetting a client; `descriptor_exhaustion` pauses
one that has no descriptor left; `hosts_file` has the names that this machine knows by itself.
"""
