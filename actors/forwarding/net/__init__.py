"""One socket or one timer each: from a name to addresses (`resolver`), from addresses to a connected
socket (`dialer`, `source_address`), idle connections (`connection_pool`), bytes in the kernel (`splice`), the end of a
connection (`lingering_close`), deadlines (`timer_wheel`), and the TLS of an `https` proxy
(`tls_server`)."""
