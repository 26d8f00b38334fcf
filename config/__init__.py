"""Configuration and formats: settings, models of requests and documents, files and paths, texts, addresses.

Nothing here opens a socket or starts a process; every other package imports from this one and this one from none.
"""

VERSION = "0.1.0"


class OperatorError(Exception):
    """An error whose text is written for who runs the product: commands print it as it is."""
