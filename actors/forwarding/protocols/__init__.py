"""The protocols without sockets: bytes and events in, commands out. Nothing here knows a socket, a clock or a logger.

`session` is what HTTP and SOCKS sessions have in common, `commands` what they ask for, `failures` why they refuse,
`session_config` what the configuration says to them; `registry` chooses the session of a proxy.
"""
