"""The credentials of an account: secrets that live for a second to months."""

from __future__ import annotations

from api.openapi.schemas.account_credentials import Credentials, NewCredential, OneCredential, Refusals
from api.openapi.schemas.base import Revoked
from api.operations.operation import V1, create, delete, get, resource
from api.resources import account_credentials as handlers
from api.resources import refusals
from config.model.new_credentials import READ_ONLY_FIELDS, CredentialCreate

_ONE = "/{credential_id}"

TABLE = resource(f"{V1}/accounts/{{account_id}}/credentials", read="proxy.read", write="proxy.write")(
    get(
        "",
        "listCredentials",
        handlers.list_credentials,
        Credentials,
        query=handlers.ListCredentials,
        account_scoped=True,
    ),
    create(
        "",
        "createCredential",
        handlers.create_credential,
        NewCredential,
        body=CredentialCreate,
        read_only=READ_ONLY_FIELDS,
        account_scoped=True,
    ),
    get(_ONE, "getCredential", handlers.get_credential, OneCredential, account_scoped=True),
    get(
        f"{_ONE}/refusals",
        "listRefusals",
        refusals.list_refusals,
        Refusals,
        "metrics.read",
        query=refusals.CredentialRefusals,
        account_scoped=True,
    ),
    delete(_ONE, "revokeCredential", handlers.revoke_credential, Revoked, account_scoped=True),
)
