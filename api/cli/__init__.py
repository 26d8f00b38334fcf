"""The command line, but for what must run the product itself (`supervisor.py`).

A command is a function from a session and options to the API and back: `command` (`commands.py`) gives it the options
that all have in common, and a `Session` with a `Client` (`client.py`) and an `Output` (`output.py`). What goes wrong is
a `CommandError` (`trouble.py`), which becomes a sentence, a hint and an exit status in one place. Commands that must
work while the product is stopped are in `offline.py`.

`application.py` puts all of them together. To start fast, the modules of commands import typer alone; requests and rich
are loaded by the first call and the first table on a terminal.
"""
