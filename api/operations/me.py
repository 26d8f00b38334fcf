"""What holders of accounts do themselves: it is recorded within a budget of each, and so by no row of the table."""

from __future__ import annotations

from api.openapi.schemas import me as views
from api.openapi.schemas.account_credentials import Credentials, NewCredential
from api.openapi.schemas.base import Message, Revoked
from api.openapi.schemas.clients import SnippetsOfAccount
from api.operations.operation import HOLDER, NONE, V1, Operation, create, delete, get, post, resource
from api.resources import me
from api.resources.account_credentials import ListCredentials
from api.resources.clients import AccountSnippets
from config.model.new_credentials import READ_ONLY_FIELDS, CredentialCreate

TABLE = resource(f"{V1}/me", read=HOLDER, write=HOLDER)(
    post(
        "/login",
        "loginAccount",
        me.login,
        views.HolderToken,
        NONE,
        body=me.AccountLogin,
        audit=False,
        session_cookie=True,
    ),
    post(
        "/resume",
        "resumeAccount",
        me.resume,
        views.HolderSession,
        NONE,
        errors=(401,),
        audit=False,
        session_cookie=True,
    ),
    post("/logout", "logoutAccount", me.logout, Message, audit=False),
    get("", "getMe", me.show, views.Me),
    Operation("PATCH", "", "updateMe", me.change_password, Message, body=me.OwnPassword),
    get("/usage", "getMyUsage", me.show_usage, views.OwnUsage),
    get("/connections", "listMyConnections", me.list_connections, views.OwnConnections, query=me.OwnConnections),
    get(
        "/credentials",
        "listMyCredentials",
        me.list_credentials,
        Credentials,
        query=ListCredentials,
    ),
    create(
        "/credentials",
        "createMyCredential",
        me.create_credential,
        NewCredential,
        body=CredentialCreate,
        read_only=READ_ONLY_FIELDS,
        audit=False,
    ),
    delete("/credentials/{credential_id}", "revokeMyCredential", me.revoke_credential, Revoked, audit=False),
    get("/snippets", "getMySnippets", me.get_snippets, SnippetsOfAccount, query=AccountSnippets),
)
