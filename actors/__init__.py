"""The processes that do the work, and the bus between them.

`bus` is how they talk, `process` is what every actor is, `supervision` is how they are started and watched;
`forwarding`, `metrics`, `logs`, `webhooks`, `resolver`, `pools` and `telemetry` are the actors themselves. `state` is
what processes count together, `accounts` and `lists` are what all of them read. An actor owns its files and connections
alone; other actors send it messages.
"""
