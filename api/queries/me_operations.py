"""The operations of account holders on their own account."""

from __future__ import annotations

import sqlite3
import time
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field, StrictStr

from actors.bus.messages.accounts import AccountActivity
from actors.bus.messages.common import METRICS
from actors.bus.messages.forwarding import ConnectionFilter, QueryConnections
from actors.forwarding.connections.table import SORTS
from api.audit.audit_context import origin
from api.call import Call, Reply
from api.engine.operation import HOLDER, NONE, V1, Operation, create, delete, get, post, resource
from api.engine.records import moment
from api.engine.responses import Message, Moment, NodesMeta, ResponseModel, Revoked, ScheduleView, group_view, shows
from api.errors import Denied, Invalid, PeerUnavailable, Unauthenticated
from api.http import session_cookie
from api.http.query import AllNodes, integer, order
from api.objects.accounts import credential_operations as credentials
from api.objects.accounts.account_activity import usage_view, used_bytes
from api.objects.accounts.account_kind import status_of
from api.objects.accounts.account_responses import UsageView
from api.objects.accounts.credential_operations import Credentials, ListCredentials, NewCredential
from api.objects.accounts.self_service import AccountOfHolder, token_view
from api.objects.proxies.client_operations import AccountSnippets, SnippetsOfAccount, snippets_of_account
from api.objects.users.sign_in_operations import NOT_CACHED, check_page
from api.queries.connection_operations import Connection, connection_view
from api.queries.fleet_connections import MergedConnections, Row
from api.queries.usage_operations import UsageFigures
from api.queries.usage_report import days_of, days_on_all_nodes
from api.security.account_sessions import LIFETIME
from api.security.caller import AccountHolder
from config.model.account_credentials import READ_ONLY_FIELDS, CredentialCreate
from config.model.accounts import AccountLimits, Quota
from config.model.choices import ProxyProtocol
from config.model.fields import Body, Password, example
from config.model.fleet_accounts import FleetAccount
from config.model.object_fields import named_in, without_names
from config.model.plans import RuleQuota, SelfService
from config.text.formatting import timestamp_text

RuleQuotaView: Any = group_view(RuleQuota)
SelfServiceView: Any = group_view(SelfService)


class HolderToken(ResponseModel):
    """The token of a holder; `expires_in` in seconds."""

    access_token: str
    expires_in: int
    token_type: Literal["Bearer"]


class HolderSession(HolderToken):
    """The token of a sign-in that goes on, and the name of its account."""

    username: str


class OwnProxy(ResponseModel):
    """A proxy that the account may use."""

    name: str
    protocol: ProxyProtocol
    port: int


@shows(AccountLimits)
class OwnLimits(ResponseModel):
    """The limits that hold, 0 for none: `clients` client addresses within `clients_window` seconds."""


class OwnAccount(ResponseModel):
    """The account, with what it has of its plan: an empty `allow_destinations` permits all, `schedule` null always.

    `clients` is how many client addresses are in use now, null where their number has no limit.
    """

    username: str
    status: Literal["active", "disabled", "expired", "quota_reached"]
    plan: str | None
    proxies: list[OwnProxy]
    limits: OwnLimits
    clients: int | None
    quota: RuleQuotaView
    allow_destinations: list[str]
    deny_destinations: list[str]
    schedule: ScheduleView | None
    allow_clients: list[str]
    expires_at: Moment | None
    created_at: Moment
    self_service: SelfServiceView


class Me(ResponseModel):
    """The holder's own account."""

    account: OwnAccount


class OwnUsageDay(UsageFigures):
    """What the account has used on a day."""

    start: Moment = Field(alias="from")
    to: Moment


class OwnUsage(ResponseModel):
    """What the account has used over all proxies, and when; `days` without usage are left out."""

    usage: UsageView
    last_seen_at: Moment | None
    last_client_ip: str | None
    days: list[OwnUsageDay]


class OwnConnection(Connection):
    """A live connection of the account; `proxy` is the name of its proxy.

    What is the operator's own is always null: `parent`, `pool`, `source_address` and `source_rule`.
    """

    proxy: str


class SilentProxy(ResponseModel):
    """A proxy whose process did not reply."""

    proxy: str
    error: str


class OwnConnections(ResponseModel):
    """A page of live connections of the account."""

    connections: list[OwnConnection]
    total: int
    unavailable: list[SilentProxy]
    meta: NodesMeta | None = None


PROXIES_ASKED = 50
"""So many are asked for connections, whether they had some or not."""
DAYS = 31
"""Days of usage in one response."""


class AccountLogin(Body):
    """The body of a sign-in. `proxy`, a name or an id, says which account is meant where several have the name.

    With `"session": "cookie"` a cookie has the token, too, for pages of this API.
    """

    model_config = example({"username": "alice", "password": "correct horse"})

    username: Annotated[StrictStr, Field(min_length=1, max_length=256)]
    password: Annotated[StrictStr, Field(min_length=1, max_length=1024)] = Field(repr=False)
    proxy: Annotated[StrictStr, Field(min_length=1, max_length=128)] | None = None
    session: Literal["cookie"] | None = None


class OwnPassword(Body):
    """The body of a change of one's own password."""

    model_config = example({"password": "battery staple", "current_password": "correct horse"})

    password: Password = Field(repr=False)
    current_password: Annotated[StrictStr, Field(min_length=1, max_length=1024)] = Field(repr=False)


class ListOwnConnections(AllNodes):
    """The order of connections, and the page."""

    sort: str = order(SORTS, "-age")
    limit: int = integer("The size of the page", 1, 1000, 100)
    offset: int = integer("How many to skip", 0, 10_000, 0)


def login(call: Call) -> Reply:
    """Sign in as the holder of an account.

    Exchanges the user name and the password of an account for a token that opens the operations below `/me`, and
    nothing else. After too many failures for one name from one address, sign-ins are refused with 429 for 15 minutes.
    With `"session": "cookie"` a page of this API finds the token again after a reload: `POST /me/resume`.
    """
    body = call.body
    check_page(call, body.session)
    holder, token = call.services.self_service.sign_in(body.username, body.password, body.proxy, call.address)
    origin().holder = holder
    _record(call, holder, "account.login")
    cookies: tuple[str, ...] = ()
    if body.session is not None and session_cookie.has_place(call.site, call.headers.get("origin")):
        name, path = session_cookie.HOLDER_NAME, session_cookie.HOLDER_PATH
        cookies = (session_cookie.set_cookie(call.site, token, LIFETIME, name, path),)
    return Reply(token_view(token), headers=NOT_CACHED, cookies=cookies)


def resume(call: Call) -> Reply:
    """Continue a sign-in as the holder of an account.

    Returns the token in the cookie of a sign-in with `"session": "cookie"`, and whose it is. The cookie opens nothing
    else, and only pages of this API can use it. It lasts as long as the token.
    """
    token = session_cookie.token_in(call.headers.get("cookie"), call.site.secure, session_cookie.HOLDER_NAME)
    if not token:
        raise Unauthenticated("There is no sign-in of a holder here")
    if call.is_cross_origin:
        raise Denied(session_cookie.CROSS_ORIGIN)
    holder = call.services.self_service.holder_of(f"Bearer {token}")
    if holder is None:
        raise Unauthenticated("The cookie is none of a holder")
    seconds = max(1, int(holder.session.until - time.time()))
    view = {**token_view(token), "expires_in": seconds, "username": holder.username}
    return Reply(view, headers=NOT_CACHED)


def logout(call: Call) -> Reply:
    """Sign out as the holder of an account.

    Ends the token in `Authorization`. It stays ended after a restart.
    """
    _record(call, call.holder, "account.logout")
    call.services.self_service.sign_out(call.holder)
    return Reply({"message": "Signed out"})


def show(call: Call) -> Reply:
    """Show one's own account.

    Returns the rules that hold for the account, what it has used, and the proxies that it may use. `self_service` says
    what its plan permits the holder to do.
    """
    return Reply({"account": _view(call, call.services.self_service.account(call.holder))})


def change_password(call: Call) -> Reply:
    """Change one's own password.

    Needs the current password, and a plan that permits it. All tokens of the account end, and so do its open
    connections; credentials stay.
    """
    body = call.body
    call.services.self_service.change_password(call.holder, body.current_password, body.password, call.address)
    return Reply({"message": "The password is changed; sign in with the new one"})


def show_usage(call: Call) -> Reply:
    """Show one's own usage.

    Returns what the account has used in the current period of its quota, over all proxies, what remains, and `days`:
    those of the last 31 (UTC) on which something was used. 503 means that it is not known at this moment.
    """
    account = call.services.self_service.account(call.holder).record
    activity = _activity(call, account)
    if activity is None:
        raise PeerUnavailable(METRICS, "no usage of an account")
    data = {
        "usage": usage_view(activity, call.services.account_activity.quota_of(account)),
        "last_seen_at": timestamp_text(activity.last_seen) if activity.last_seen else None,
        "last_client_ip": activity.client_ip or None,
        "days": _days(call, account),
    }
    return Reply(data)


def list_connections(call: Call) -> Reply:
    """List one's own live connections.

    Returns the open connections of the account. Of more than 50 proxies those are asked that had some a second ago, at
    most 50. `unavailable` names those whose processes did not reply in time; 503 means that it is not known where
    there are connections.
    """
    query: ListOwnConnections = call.query
    service = call.services.self_service
    account = service.account(call.holder).record
    proxies = [each.record for each in service.proxies(account)]
    if len(proxies) > PROXIES_ASKED:
        activity = _activity(call, account)
        if activity is None:
            raise PeerUnavailable(METRICS, "no proxies of an account")
        proxies = [each for each in proxies if each.id in activity.proxies]
    fleet = MergedConnections(call.services.bridge, proxies, call.services.runtime.whole(), call.nodes)
    only = ConnectionFilter(user=account.username)
    rows, total = fleet.page(QueryConnections(only, query.sort, query.limit, query.offset))
    silent = [{"proxy": each.name, "error": fleet.silent[each.id]} for each in proxies if each.id in fleet.silent]
    return Reply({"connections": list(map(_connection, rows)), "total": total, "unavailable": silent})


def list_credentials(call: Call) -> Reply:
    """List one's own credentials.

    Returns the credentials of the account, oldest first, without their secrets. One that has lapsed is listed for
    another hour.
    """
    if call.services.inline_accounts.get(call.holder.account_id) is not None:  # which has none
        return Reply({"credentials": [], "next_cursor": None})
    reply = credentials.list_credentials(_of_account(call))
    for each in reply.data["credentials"]:
        each["allow_destinations"] = each["allow_destinations"] and without_names(each["allow_destinations"])
    return reply


def create_credential(call: Call) -> Reply:
    """Make a credential of one's own account.

    Needs a plan that permits it, and fewer than 1,000 credentials that the account has. The secret is in this response
    only; clients send it as the password of the account.
    """
    call.services.self_service.require_credentials(call.holder)
    for named in named_in(call.body.allow_destinations, "allow_destinations"):  # else errors would say which exist
        raise Invalid(named.field, "must be a host or a network: lists are the operator's own")
    with call.services.self_service.place(call.holder):
        return credentials.create_credential(_of_account(call))


def revoke_credential(call: Call) -> Reply:
    """Revoke a credential of one's own account.

    Needs a plan that permits it. Clients that send the credential are refused at once, and its connections end within
    a second.
    """
    call.services.self_service.require_credentials(call.holder)
    return credentials.revoke_credential(_of_account(call))


def get_snippets(call: Call) -> Reply:
    """Get client configuration snippets for one's own account.

    Returns commands and configuration lines for each proxy that the account may use, at most 20, or for one of them.
    The password appears as a placeholder.
    """
    return snippets_of_account(call, call.services.self_service.account(call.holder).record)


def _of_account(call: Call) -> Call:
    """The request, as one about the holder's account."""
    return replace(call, params={"account_id": call.holder.account_id, **call.params})


def _days(call: Call, account: FleetAccount) -> list[dict[str, Any]]:
    fleet = call.services.node.usage
    if fleet is not None:
        return days_on_all_nodes(fleet, account.id, time.time(), DAYS)
    try:
        return days_of(call.services.data.usage, account.id, time.time(), DAYS)
    except sqlite3.Error as error:
        raise PeerUnavailable(METRICS, error) from error


def _activity(call: Call, account: FleetAccount) -> AccountActivity | None:
    known = call.services.account_activity.of([account])
    return None if known is None else known[account.id]


def _view(call: Call, own: AccountOfHolder) -> dict[str, Any]:
    """Tags and metadata are the operator's own."""
    record, rules = own.record, own.rules
    activity, quota, none = _activity(call, record), rules.quota or Quota(), AccountLimits().model_dump()
    proxies = [each.record for each in call.services.self_service.proxies(record)]
    return {
        "username": record.username,
        "status": status_of(record, time.time(), 0 < quota.bytes <= used_bytes(activity)),
        "plan": None if own.plan is None else own.plan.name,
        "proxies": [{"name": each.name, "protocol": each.protocol, "port": each.port} for each in proxies],
        "limits": {**none, **rules.limits.model_dump(exclude_none=True)},
        "clients": call.services.account_activity.clients_of(record.id, rules.limits),
        "quota": quota.model_dump(),
        "allow_destinations": without_names(rules.allow_destinations or []),
        "deny_destinations": without_names(rules.deny_destinations or []),
        "schedule": None if rules.schedule is None else rules.schedule.model_dump(),
        "allow_clients": record.allow_clients,
        "expires_at": moment(record.expires_at),
        "created_at": timestamp_text(record.created_at),
        "self_service": own.permitted.model_dump(),
    }


def _connection(row: Row) -> dict[str, Any]:
    """Upstreams, pools and where connections leave from are the operator's own."""
    hidden = dict.fromkeys(("pool", "source_address", "source_rule"))
    return {"proxy": row.proxy.name, **connection_view(row.connection, frozenset()), **hidden}


def _record(call: Call, holder: AccountHolder, action: str) -> None:
    resource = {"type": "account", "id": holder.account_id, "name": holder.username}
    call.services.sign_ins_of_holders.record(holder.account_id, resource, {}, action, "done")


ROWS = resource(f"{V1}/me", read=HOLDER, write=HOLDER)(
    post(
        "/login",
        "loginAccount",
        login,
        HolderToken,
        NONE,
        body=AccountLogin,
        audit=False,
        session_cookie=True,
    ),
    post(
        "/resume",
        "resumeAccount",
        resume,
        HolderSession,
        NONE,
        errors=(401,),
        audit=False,
        session_cookie=True,
    ),
    post("/logout", "logoutAccount", logout, Message, audit=False),
    get("", "getMe", show, Me),
    Operation("PATCH", "", "updateMe", change_password, Message, body=OwnPassword),
    get("/usage", "getMyUsage", show_usage, OwnUsage),
    get("/connections", "listMyConnections", list_connections, OwnConnections, query=ListOwnConnections),
    get(
        "/credentials",
        "listMyCredentials",
        list_credentials,
        Credentials,
        query=ListCredentials,
    ),
    create(
        "/credentials",
        "createMyCredential",
        create_credential,
        NewCredential,
        body=CredentialCreate,
        read_only=READ_ONLY_FIELDS,
        audit=False,
    ),
    delete("/credentials/{credential_id}", "revokeMyCredential", revoke_credential, Revoked, audit=False),
    get("/snippets", "getMySnippets", get_snippets, SnippetsOfAccount, query=AccountSnippets),
)
