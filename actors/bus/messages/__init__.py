"""All messages of the mailbox and the events plane: one small class each, one module for each subject.

Each docstring states sender → receiver, when it is sent, and → the reply. A request always gets a reply: the one that
its docstring names, `Failed` when the receiver could not do it, or `Unreachable` when there is no receiver.
Importing a module registers its messages with `actors.bus.codec`. `actors.bus.permissions`, which each process on the
bus has, imports all of them; a process that only uses a value of one module loads none but that. Times are Unix
seconds, durations seconds, sizes bytes.
"""
