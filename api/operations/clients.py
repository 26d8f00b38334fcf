"""For clients of the proxies: the PAC file, and lines to copy."""

from __future__ import annotations

from api import queries
from api.autoconfig import MEDIA_TYPE
from api.operations.operation import PROXY, Operation
from api.resources import clients

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        "/proxy.pac",
        "proxy.read",
        "getPac",
        "The active proxies as a PAC file for browsers",
        clients.pac,
        query=queries.PAC,
        enveloped=False,
        produces=MEDIA_TYPE,
        names_resource=True,
        open_by="public_pac",
    ),
    Operation(
        "GET",
        f"{PROXY}/snippets",
        "proxy.read",
        "getSnippets",
        "Lines to copy for clients of a proxy",
        clients.show_snippets,
        query=queries.SNIPPETS,
    ),
)
