"""`scripts/screenshots`: pictures of the dashboard from a product with made-up data, over loopback.

`seed` makes the objects, `past` the records and series of the days before, `internet` and `clients` the traffic of now,
`pictures` looks at it with Debian's Chromium.
"""
