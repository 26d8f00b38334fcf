"""Backups: one archive with everything that must outlive the product, and the way back.

A backup is taken while the product runs, by reading what it has on the disk. Files of the configuration store are only
ever replaced, never altered; so when none of them was replaced while all were read, they are the configuration of one
moment (`collecting`). The databases are copied in a transaction each, after the store: the audit trail has the row of
every change that the copied store has. What isn't taken: answers that are kept for `Idempotency-Key`, and access
records unless they are asked for.

The archive (`writing`, and `archive` for whoever reads it) is a gzipped tar: `manifest.json` first, with the SHA-256
of each file, then the files. The key files are sealed under a passphrase (`sealed_keys`), and the seal covers the
manifest, so with it a whole archive is known for what it is; or they are left out, and such an archive is good where
the keys still are.

A restore reads and checks all of it beside the data (`restoring`), says what differs (`present`, `differing`), and then
replaces whole folders (`replacing`). Until one rename nothing has happened, and after it the rest is done by whoever
comes next; so a restore that is killed leaves the old state, or the new one, and nothing between.
"""
