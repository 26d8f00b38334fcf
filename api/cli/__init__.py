"""The command line. The console script is `supervisor.py`; `local/serve.py` runs the product.

A command is a function that takes a session and the values of its options: `command` (`commands.py`) makes them of a
table by the API's field (`options.py`), adds the options that all commands share, and passes a `Session` with a
`Client` (`client.py`) and an `Output` (`terminal.py`). `list show create update delete` of a kind of object are made
of one row (`Commands`). Every failure is a `CommandError` (`errors.py`), which is printed as message and hint, and
becomes the exit status, in one place. `remote` has the commands that call the API, `local` those that work on the
product's machine, also while it is stopped.

`application.py` knows the module of each command, and loads that of the one that is called. To start fast, they import
typer alone; requests is loaded by the first call, rich by the first table on a terminal, and what local commands need
of the product when they are called: `local/commands.py` has only their options and help.
"""
