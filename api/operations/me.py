"""What holders of accounts do themselves."""

from __future__ import annotations

from api.openapi.schemas import me as views
from api.openapi.schemas.resources import Message
from api.operations.operation import HOLDER, NONE, V1, Operation, get, post, resource
from api.resources import me

TABLE = resource(f"{V1}/me", read=HOLDER, write=HOLDER)(
    post("/login", "loginAccount", me.login, views.HolderToken, NONE, body=me.AccountLogin, audit="account.login"),
    post("/logout", "logoutAccount", me.logout, Message, audit="account.logout"),
    get("", "getMe", me.show, views.Me),
    Operation("PATCH", "", "updateMe", me.change_password, Message, body=me.OwnPassword),
    get("/usage", "getMyUsage", me.show_usage, views.OwnUsage),
    get("/connections", "listMyConnections", me.list_connections, views.OwnConnections, query=me.OwnConnections),
    get("/snippets", "getMySnippets", me.get_snippets, views.OwnSnippets, query=me.OwnSnippets),
)
