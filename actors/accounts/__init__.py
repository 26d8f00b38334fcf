"""The accounts of the fleet, which all forwarding actors share: one memory-mapped table that the API writes.

An account, a plan or a credential is a document of the API's store. After each commit the API writes what forwarding
needs of it to the table, an LMDB file in the data directory. Actors read it and hold only the accounts in use. The
table is derived: the API brings it up to date at its start, and makes it anew where it is damaged, of another store or
of another boot of the machine.

- `records`: what the table has of an account, a plan, a credential; `effective` merges an account with its plan.
- `schedule`: windows of the week in a time zone.
- `table`: the file and its readers; `table_writer`: its writer.

An actor sees a change at its next look-up, since readers of LMDB see the last commit. For connections that are open it
follows the table's list of changes, so a revocation holds even when the API dies right behind its commit.
"""
