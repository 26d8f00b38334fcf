"""The protocols without sockets: bytes and events in, commands out. Nothing here knows a socket, a clock or a logger.

`session` is the interface of HTTP and SOCKS sessions, `state_machine` the form of the tables that they run on,
`commands` what they ask of their driver, `failures` their errors, `refusals` their responses in each protocol.
"""
