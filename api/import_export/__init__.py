"""The whole configuration as one document: export, and declarative import.

`document` has the models of the document, whose entries are declared with their kinds, and seals secrets under a
passphrase. An import is planned first (`plan`; `account_entries` where names are those of proxies and plans), as a
pure comparison of the present state (`present_state`) with the desired one, and checked as a whole (`checks`);
`imports` then carries the plan out, all of it or nothing. So it does with what `restoring` plans
from revisions, and `proxy_batches` for many proxies.

Resources are known by their names: proxies by `name`, users by `username`, webhooks by `name` and, where several have
the same, by `url`. Identifiers are of one installation and are not in the document; API keys and tokens aren't either.
"""
