"""The processes that do the work, and the bus between them.

`bus` is how they talk, `process` is what every actor is, `supervision` is how they are started and watched;
`forwarding`, `metrics`, `logs` and `webhooks` are the actors themselves. An actor owns its files and connections
alone; other actors send it messages.
"""
