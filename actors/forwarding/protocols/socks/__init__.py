"""SOCKS 4, 4a and 5 as proxies speak it: sessions without sockets, and the formats on the wire."""
