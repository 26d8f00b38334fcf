"""Objects of the API: what holds for each kind of them, once.

A **kind** (list, pool, policy, webhook, user, …) is one declaration, `Kind` (`api.engine.kind`): its stored model,
whose metadata (`config.model.declaration`) says what a request may give and what responses have, how a record is made
and changed, what it refers to, and the words of its descriptions. The declarations are in `api/objects`, one module or
package for each, and `api.objects.kinds` has the table of them.

From the declaration follow:

| module | what |
|---|---|
| `commit` | the one way to change documents: with audit trail and history, in one transaction |
| `replica` | the file as it takes commits, those of this node and of others; `commit` builds on it |
| `ledger` | commits as things, and the seam by which many nodes have one order of them |
| `effects` | what follows from commits, in their order |
| `levels` | which releases can read a document, where nodes have several |
| `objects` | reads and changes: names that are unique, `If-Match`, a change of nothing, the most there may be, events |
| `records`, `responses` | a record as responses have it, and the models of these for the description of the API |
| `operation`, `operations` | the rows of list, create, show, update, delete, with their handlers and the cursor |
| `transfer` | entries of documents: export, import, the differences, minimal documents, restored records |

A change is a `Proposal`: prepared, which may take its time, and then checked and stored under the lock of its kind; any
number of them are one commit. What belongs to a kind alone is given at construction, as `Hooks`: what makes the record
for this caller, what refuses a change, what holds others up until it is stored, what is stored with it, and what views
have beside the record. The engine knows no kind, and a kind
knows no other one's insides.
"""
