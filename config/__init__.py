"""What the operator may say, and where things lie: settings, proxy definitions, paths, texts of units.

Nothing here opens a socket or starts a process; every other package imports from this one and this one from none.
"""

VERSION = "0.1.0"
