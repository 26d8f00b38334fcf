"""For clients of the proxies: the PAC file, and lines to copy."""

from __future__ import annotations

from api.operations import query_parameters
from api.operations.operation import PROXY, Operation
from api.resources import clients
from api.services.pac import MEDIA_TYPE

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
        query=query_parameters.PAC,
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
        query=query_parameters.SNIPPETS,
    ),
)
