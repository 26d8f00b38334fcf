"""The whole configuration as one document: export, and declarative import.

`document` has the models of the document, `entries` makes entries of records, `sealed_secrets` seals secrets under a
passphrase. An import is planned first (`plan`, with a module for each kind of resource), as a pure comparison of the
present state with the desired one; `imports` then carries the plan out, all of it or nothing.

Resources are known by their names: proxies by `name`, users by `username`, webhooks by `name` and, where several have
the same, by `url`. Identifiers are of one installation and are not in the document; API keys and tokens aren't either.
"""
