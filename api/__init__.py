"""The management API, its configuration store and the command line. Each line imports only from those below it.

==================================  =================================================================================
`process`                           the actor: opens the store, joins the bus, starts the server
`app`, `middleware`, `openapi`      the WSGI application: operations as routes, what holds for every request, its
description `server`                            waitress and sockets, TLS; knows nothing of proxies
`operations`, `resources`           the table of operations, and a handler for each, from a `call.Call` to a `Reply`
`import_export`                     the whole configuration as one document
`container`                         `Services`: everything that handlers need, put together in one place
`backup`, `operator`, `cli`         what runs without the API: backups, the first start, offline commands; the command
line `services`, `oauth`                 what can be done with proxies, accounts, webhooks, settings; sign-in at a
provider `audit`, `http`                     the audit trail; envelopes, bodies, queries and the error table
`security`                          users, API keys, tokens, passwords: who asks, and what they may
`store`, `bus_bridge`, `errors`     documents with revisions; the way to the bus; why something can't be done
==================================  =================================================================================
"""
