"""The workers of one proxy: what they count together, in shared memory, without a lock and without a message.

`columns` is the file that the supervisor makes for a proxy with several workers, with a line for each process. A
process counts in files of its own, made at first need: `keys` has the connections and requests of clients, accounts and
rules, `rates` what moved in the last period and how workers divide a bandwidth, `sessions` what has left its first
choice, `usage` the bytes of accounts with a quota. It maps those of the others to read them; `worker` is all of that
for one process.
"""
