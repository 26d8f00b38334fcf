"""The whole configuration as one document: export, and declarative import.

`document` is what the document looks like, `portable` how records become entries of it, `vault` how secrets travel in
it. An import is planned first (`plan`, with a module for each kind of resource), as a pure comparison of what is
there with what is wanted; `imports` then carries the plan out, all of it or nothing.

Resources are known by their names: proxies by `name`, users by `username`, webhooks by `name` and, where several have
the same, by `url`. Identifiers are of one installation and are not in the document; API keys and tokens aren't either.
"""
