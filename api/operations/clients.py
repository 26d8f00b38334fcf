"""Configuration for clients of the proxies: the PAC file, and snippets to copy."""

from __future__ import annotations

from api.openapi.schemas.clients import Snippets, SnippetsOfAccount
from api.operations.operation import PROXY, V1, get, resource
from api.resources import clients
from api.services.pac import MEDIA_TYPE

TABLE = resource("", read="proxy.read")(
    get(
        "/proxy.pac",
        "getPac",
        clients.pac,
        query=clients.GetPac,
        produces=MEDIA_TYPE,
        errors=(404,),
        public_if="public_pac",
        scoped=True,
    ),
    get(
        f"{V1}/accounts/{{account_id}}/snippets",
        "getAccountSnippets",
        clients.get_account_snippets,
        SnippetsOfAccount,
        query=clients.AccountSnippets,
        account_scoped=True,
    ),
    get(f"{PROXY}/snippets", "getSnippets", clients.get_snippets, Snippets, query=clients.GetSnippets),
)
