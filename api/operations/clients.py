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
        "Get a PAC file of the active proxies",
        clients.pac,
        description=(
            "Returns a proxy auto-configuration file for browsers with all active proxies, or with those of one "
            "`tag`. It needs no credentials when `security.public_pac` is on."
        ),
        query=queries.PAC,
        enveloped=False,
        produces=MEDIA_TYPE,
        names_resource=True,
        open_by="public_pac",
        scoped=True,
    ),
    Operation(
        "GET",
        f"{PROXY}/snippets",
        "proxy.read",
        "getSnippets",
        "Get client configuration snippets",
        clients.show_snippets,
        description=(
            "Returns commands and configuration lines that make curl, git, pip, apt, docker and browsers use "
            "this proxy. Passwords appear as placeholders."
        ),
        query=queries.SNIPPETS,
    ),
)
