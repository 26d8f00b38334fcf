"""The management API, its configuration store and the command line. Each line imports only from those below it.

==================================  =================================================================================
`process`                           the actor: opens the store, joins the bus, starts the server
`app`, `middleware`, `openapi`      the WSGI application: operations as routes, what holds for every request, its
                                    description
`server`                            waitress and sockets, TLS; knows nothing of proxies
`operations`                        the table of operations, and what happens in each
`import_export`                     the whole configuration as one document
`queries`, `objects`                a handler for each operation (`…_operations`), from a `call.Call` to a `Reply`
`container`                         `Services`: everything that handlers need, put together in one place
`backup`, `operator`, `cli`         what runs without the API: backups, the first start, offline commands; the command
                                    line
`queries`, `objects`, `oauth`       what is asked of processes; what can be done with proxies, accounts, webhooks, …;
                                    sign-in at a provider
`engine`                            what holds for each kind of object, once
`audit`, `http`                     the audit trail; envelopes, bodies, queries and the error table
`security`                          users, API keys, tokens, passwords: who asks, and what they may
`store`, `bus_bridge`, `errors`     documents with revisions; the way to the bus; why something can't be done
==================================  =================================================================================
"""
