"""How nodes ask each other, without the database.

| module | what |
|---|---|
| `internal_api` | where nodes ask each other: HTTP over TLS, at `cluster.listen` |
| `link` | the bus over nodes: what asks actors of other nodes, and what other nodes may ask of these |
| `certificates` | by what nodes know each other, and TLS between them |
"""
