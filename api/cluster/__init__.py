"""Several nodes with one configuration: PostgreSQL is the ledger, and each node's file of the fleet is a replica of it.

Imported in a fleet alone. A change is written to the database first, in one transaction; then each node, the one that
made it among them, takes it into its own file (`api.engine.replica`). So what reads or forwards doesn't know that there
is a database, and goes on without it.

| module | what |
|---|---|
| `shared_ledger` | the commits of the database: take its lock, append to it, read what a replica lacks |
| `commit_transfer` | how a commit gets to the database, and back |
| `blobs` | files that one node makes for all |
| `duties` | what one node does for all, and who announces an event of the fleet |
| `roles` | the database role of each node: what it may do there is in `migrations/0006_nodes.sql` |
| `joining` | how a machine becomes a node, by a token |
| `following` | takes what other nodes commit, says that this node is there, and what is wrong with it |
| `links` | where and how nodes ask each other |
| `keys` | the key that seals secrets: follow it, replace it |
| `loose` | sign-ins and credentials, which need no order: in no commit, without the lock, and without the database |
| `shared_requests` | failed sign-ins, marks of `Idempotency-Key` and last uses, of all nodes |
| `fleet_node` | what the API of a node asks of it |
| `node_parts` | what runs there beside the requests, put together |
| `fleet_chores` | what the node with the duty prunes, and says of other nodes |
| `migration_runner` | brings the schema of the database forward; its steps are the files of `migrations` |

**One order.** Commits are numbered 1, 2, 3 under the lock of the one row of `fleet`, so numbers appear in the order of
commits and a follower misses none. A change takes the lock, catches its replica up, checks, and appends: two round
trips, and no other wait between. So every check that one machine makes holds over all of them: what was checked before
the lock is checked again within it (`api.engine.commit.Engine.rechecked`).

**A large commit**, such as an import of 100,000 accounts, is there as rows before its transaction takes the lock, and
its node's own file has it afterwards: so others wait only while the database moves the rows. They read it in pages
(`following.rereading`), and so does its node, when that ends between the two.

**A document is in its last commit alone**, as in the embedded store: a commit that is read later lacks the documents
that a later one has changed again. Only at the end of what there is to read is the replica whole: so all of it is
taken in one step.

**Each node has an audit trail of its own**: a hash chain can't be continued by two. Its entries are synced here before
their commit goes to the ledger (`api.engine.ledger.UnsettledEntries`), or a node that is killed between would continue
its chain at two places. A commit brings all entries that the ledger lacks, also those that were made without one; a
node reads back its own alone.

**An uncertain commit.** If the connection breaks while a commit is under way, it may have been made or not, and its
transaction may even go on without us. Each commit has a random stamp: who takes the lock, which that transaction holds
until it ends, and then finds no commit of this stamp, knows that there will be none.

**A database that was restored** from an older dump, or failed over to a standby that lacks the last commits, has
another stamp at the replica's number, or no commit of it.
"""
