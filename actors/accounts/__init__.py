"""The accounts of the fleet, which all forwarding actors read from the file that the API writes.

An account, a plan or a credential is a document of the API's store, a row of `fleet.sqlite`. The row has what
forwarding needs of it in packed form, too, written in the same transaction. Actors hold only the accounts in use.

- `records`: what forwarding has of an account, a plan, a credential; `effective` merges an account with its plan.
- `table`: the reader.

An actor sees a change at its next look-up, since readers see the last commit. For connections that are open it asks
what has changed since a revision, so a revocation holds even when the API dies right behind its commit.
"""
