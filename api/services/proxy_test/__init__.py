"""`POST /proxies/{id}/test`: one request through a proxy, as a client of it."""
