"""The operations of the API: one table that drives routes, permission checks and the API's own description.

`access` says who may try: anybody (`NONE`), whoever is signed in (`ANY`), a bearer token (`BEARER`), a person with a
bearer token or HTTP Basic but no key (`PERSON`); or it is the permission that is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import BaseModel

from api import accounts, api_keys, queries, users
from api.http.call import Call, Reply
from api.parameters import Parameter
from api.resources import access, audit, auth, connections, document, health, logs, metrics, oauth, proxies, transfer
from api.resources import accounts as account_handlers
from api.resources import api_keys as key_handlers
from api.resources import settings as settings_handlers
from api.resources import users as user_handlers
from api.resources import webhooks as webhook_handlers
from api.security.permissions import ADMIN
from api.transfer.document import ConfigDocument
from config.accounts import AccountInput, AccountUpdate
from config.live import SettingsUpdate
from config.proxies import READ_ONLY_FIELDS, ProxyCreate, ProxyUpdate
from config.webhooks import READ_ONLY_FIELDS as WEBHOOK_READ_ONLY
from config.webhooks import WebhookCreate, WebhookUpdate

NONE, ANY, BEARER, PERSON = "(none)", "(any)", "(bearer)", "(person)"

V1 = "/api/v1"
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `model` is what its body must be; with `optional_body` it may be left out.

    `query` is what it reads of the query string, `matches` whether it heeds If-Match. `produces` is the media type of
    its answer; what isn't `enveloped` is a document by itself. `may_be_unwell` ones also answer 503, in the same form;
    those that `redirects` answer 302 with the same, unless JSON is accepted by name.
    What `names_resource` in its query answers 404 when there is no such thing.
    `by_token` ones are opened by `metrics.prometheus_token`, too. Those with a `passphrase` read one from a header.

    `exempt` operations are for machines that watch: no rate limit. `own` ones need no permission for the caller's own
    account; their handler says what of it may be changed. `role` may do it without having the permission.
    """

    method: str
    path: str
    access: str
    id: str
    summary: str
    handler: Callable[[Call], Reply]
    model: type[BaseModel] | None = None
    read_only: frozenset[str] = NOTHING
    optional_body: bool = False
    exempt: bool = False
    own: bool = False
    role: str | None = None
    status: int = 200
    query: tuple[Parameter, ...] = ()
    matches: bool = False
    produces: str = "application/json"
    enveloped: bool = True
    may_be_unwell: bool = False
    names_resource: bool = False
    by_token: bool = False
    redirects: bool = False
    passphrase: bool = False

    @property
    def permission(self) -> str | None:
        """The permission that is needed, if it is one."""
        return None if self.access.startswith("(") else self.access

    @property
    def repeatable(self) -> bool:
        """Does it heed `Idempotency-Key`? Every POST of a known caller, but not what makes or ends tokens."""
        return self.method == "POST" and self.access not in (NONE, BEARER)


_USER = f"{V1}/users/{{user_id}}"
_PROXY = f"{V1}/proxies/{{proxy_id}}"
_WEBHOOK = f"{V1}/webhooks/{{webhook_id}}"
_ACCOUNT = f"{_PROXY}/accounts/{{username}}"
_ACCOUNT_READ_ONLY = accounts.READ_ONLY_FIELDS | {"username"}

OPERATIONS: tuple[Operation, ...] = (
    # --- is it well? ---
    Operation(
        "GET", "/health", NONE, "health", "Is it well, in one word", health.small, exempt=True, may_be_unwell=True
    ),
    Operation("GET", "/livez", NONE, "livez", "Does the process answer", health.live, exempt=True),
    Operation("GET", "/readyz", NONE, "readyz", "Can it do its work", health.small, exempt=True, may_be_unwell=True),
    Operation("GET", f"{V1}/health", ANY, "getHealth", "The health report", health.report, may_be_unwell=True),
    Operation("GET", f"{V1}/status", "metrics.read", "getStatus", "The system status", health.system_status),
    Operation(
        "GET",
        f"{V1}/metrics",
        "metrics.read",
        "queryMetrics",
        "Metrics over time",
        metrics.query_metrics,
        query=queries.QUERY_METRICS,
        names_resource=True,
    ),
    Operation(
        "GET", f"{V1}/metrics/realtime", "metrics.read", "getRealtimeMetrics", "Metrics of now", metrics.realtime
    ),
    Operation(
        "GET",
        "/metrics",
        "metrics.read",
        "getExposition",
        "Totals for Prometheus",
        metrics.exposition,
        enveloped=False,
        produces="text/plain",
        by_token=True,
    ),
    # --- credentials ---
    Operation("POST", f"{V1}/auth/login", NONE, "login", "Sign in", auth.login, auth.Login),
    Operation("POST", f"{V1}/auth/refresh", NONE, "refreshToken", "Get new tokens", auth.refresh, auth.Refresh),
    Operation("POST", f"{V1}/auth/validate", BEARER, "validateToken", "Check a token", auth.validate),
    Operation("POST", f"{V1}/auth/logout", BEARER, "logout", "Sign out", auth.logout),
    Operation(
        "GET",
        f"{V1}/auth/oauth2/authorize",
        NONE,
        "authorizeOAuth2",
        "Go to the identity provider to sign in",
        oauth.authorize,
        query=queries.AUTHORIZE,
        redirects=True,
    ),
    Operation(
        "POST",
        f"{V1}/auth/oauth2/callback",
        NONE,
        "finishOAuth2",
        "Sign in with what the identity provider sent back",
        oauth.callback,
        oauth.OAuthCallback,
    ),
    Operation(
        "POST",
        f"{V1}/auth/signing-key/rotate",
        ADMIN,
        "rotateSigningKey",
        "Sign with a new key",
        auth.rotate_signing_key,
    ),
    Operation("GET", f"{V1}/auth/test", ANY, "testAuth", "Who am I", auth.who_am_i),
    Operation("GET", f"{V1}/api-keys", PERSON, "listApiKeys", "List API keys", key_handlers.list_keys),
    Operation(
        "POST",
        f"{V1}/api-keys",
        PERSON,
        "createApiKey",
        "Make an API key",
        key_handlers.create_key,
        api_keys.ApiKeyCreate,
        api_keys.READ_ONLY_FIELDS,
        status=201,
    ),
    Operation(
        "DELETE", f"{V1}/api-keys/{{key_id}}", PERSON, "revokeApiKey", "Revoke an API key", key_handlers.revoke_key
    ),
    # --- proxies ---
    Operation(
        "GET",
        f"{V1}/proxies",
        "proxy.read",
        "listProxies",
        "List proxies",
        proxies.list_proxies,
        query=queries.LIST_PROXIES,
    ),
    Operation(
        "POST",
        f"{V1}/proxies",
        "proxy.write",
        "createProxy",
        "Create a proxy",
        proxies.create_proxy,
        ProxyCreate,
        READ_ONLY_FIELDS,
        status=201,
    ),
    Operation("GET", _PROXY, "proxy.read", "getProxy", "Show a proxy", proxies.get_proxy, matches=True),
    Operation(
        "PUT",
        _PROXY,
        "proxy.write",
        "replaceProxy",
        "Change a proxy",
        proxies.update_proxy,
        ProxyUpdate,
        READ_ONLY_FIELDS,
        matches=True,
    ),
    Operation(
        "PATCH",
        _PROXY,
        "proxy.write",
        "updateProxy",
        "Change a proxy",
        proxies.update_proxy,
        ProxyUpdate,
        READ_ONLY_FIELDS,
        matches=True,
    ),
    Operation("DELETE", _PROXY, "proxy.delete", "deleteProxy", "Delete a proxy", proxies.delete_proxy, matches=True),
    Operation(
        "POST", f"{_PROXY}/start", "proxy.write", "startProxy", "Start a proxy", proxies.start_proxy, matches=True
    ),
    Operation("POST", f"{_PROXY}/stop", "proxy.write", "stopProxy", "Stop a proxy", proxies.stop_proxy, matches=True),
    Operation(
        "POST",
        f"{_PROXY}/restart",
        "proxy.write",
        "restartProxy",
        "Restart a proxy",
        proxies.restart_proxy,
        matches=True,
    ),
    Operation(
        "POST",
        f"{_PROXY}/test",
        "proxy.write",
        "testProxy",
        "Send one request through a proxy",
        proxies.test_proxy,
        proxies.ProxyTest,
        optional_body=True,
    ),
    Operation(
        "POST",
        f"{_PROXY}/explain",
        "proxy.read",
        "explainAccess",
        "Say what would happen to a request, and which rule decides",
        access.explain_access,
        access.ExplainBody,
    ),
    Operation(
        "GET",
        f"{_PROXY}/connections",
        "proxy.read",
        "listConnections",
        "List live connections",
        connections.list_connections,
        query=queries.LIST_CONNECTIONS,
    ),
    Operation(
        "DELETE",
        f"{_PROXY}/connections",
        "proxy.write",
        "endConnections",
        "End the connections that match",
        connections.end_connections,
        query=queries.END_CONNECTIONS,
    ),
    Operation(
        "DELETE",
        f"{_PROXY}/connections/{{connection_id}}",
        "proxy.write",
        "endConnection",
        "End one connection",
        connections.end_connection,
    ),
    Operation(
        "GET", f"{_PROXY}/accounts", "proxy.read", "listAccounts", "List accounts", account_handlers.list_accounts
    ),
    Operation(
        "POST",
        f"{_PROXY}/accounts",
        "proxy.write",
        "createAccount",
        "Add an account",
        account_handlers.create_account,
        AccountInput,
        accounts.READ_ONLY_FIELDS,
        status=201,
        matches=True,
    ),
    Operation(
        "GET", _ACCOUNT, "proxy.read", "getAccount", "Show an account", account_handlers.get_account, matches=True
    ),
    Operation(
        "PUT",
        _ACCOUNT,
        "proxy.write",
        "replaceAccount",
        "Change an account",
        account_handlers.update_account,
        AccountUpdate,
        _ACCOUNT_READ_ONLY,
        matches=True,
    ),
    Operation(
        "PATCH",
        _ACCOUNT,
        "proxy.write",
        "updateAccount",
        "Change an account",
        account_handlers.update_account,
        AccountUpdate,
        _ACCOUNT_READ_ONLY,
        matches=True,
    ),
    Operation("DELETE", _ACCOUNT, "proxy.write", "deleteAccount", "Remove an account", account_handlers.delete_account),
    Operation(
        "POST",
        f"{_ACCOUNT}/reset-usage",
        "proxy.write",
        "resetAccountUsage",
        "Let an account have used nothing",
        account_handlers.reset_usage,
    ),
    # --- users and records ---
    Operation("GET", f"{V1}/users", "users.read", "listUsers", "List users", user_handlers.list_users),
    Operation(
        "POST",
        f"{V1}/users",
        "users.write",
        "createUser",
        "Create a user",
        user_handlers.create_user,
        users.UserCreate,
        users.READ_ONLY_FIELDS,
        status=201,
    ),
    Operation("GET", _USER, "users.read", "getUser", "Show a user", user_handlers.get_user, own=True, matches=True),
    Operation(
        "PUT",
        _USER,
        "users.write",
        "replaceUser",
        "Change a user",
        user_handlers.update_user,
        users.UserUpdate,
        users.READ_ONLY_FIELDS | {"username"},
        own=True,
        matches=True,
    ),
    Operation(
        "PATCH",
        _USER,
        "users.write",
        "updateUser",
        "Change a user",
        user_handlers.update_user,
        users.UserUpdate,
        users.READ_ONLY_FIELDS | {"username"},
        own=True,
        matches=True,
    ),
    Operation("DELETE", _USER, "users.delete", "deleteUser", "Delete a user", user_handlers.delete_user, matches=True),
    Operation(
        "GET",
        f"{V1}/logs",
        "metrics.read",
        "queryLogs",
        "Search access records",
        logs.query_logs,
        query=queries.QUERY_LOGS,
    ),
    # --- the API itself ---
    Operation(
        "GET", f"{V1}/openapi.json", NONE, "getOpenapi", "This API as OpenAPI 3.1", document.openapi, enveloped=False
    ),
    Operation(
        "GET", f"{V1}/docs", NONE, "getDocs", "This API as a page", document.page, enveloped=False, produces="text/html"
    ),
    Operation(
        "GET",
        f"{V1}/docs/{{file}}",
        NONE,
        "getDocsFile",
        "A file of that page",
        document.page_file,
        enveloped=False,
        produces="*/*",
    ),
    # --- the system ---
    Operation(
        "GET",
        f"{V1}/settings",
        "settings.read",
        "getSettings",
        "Show the settings",
        settings_handlers.get_settings,
        matches=False,
    ),
    Operation(
        "PUT",
        f"{V1}/settings",
        "settings.write",
        "replaceSettings",
        "Change the settings",
        settings_handlers.update_settings,
        SettingsUpdate,
        matches=True,
    ),
    Operation(
        "PATCH",
        f"{V1}/settings",
        "settings.write",
        "updateSettings",
        "Change the settings",
        settings_handlers.update_settings,
        SettingsUpdate,
        matches=True,
    ),
    Operation(
        "GET", f"{V1}/webhooks", "settings.read", "listWebhooks", "List webhooks", webhook_handlers.list_webhooks
    ),
    Operation(
        "POST",
        f"{V1}/webhooks",
        "settings.write",
        "createWebhook",
        "Create a webhook",
        webhook_handlers.create_webhook,
        WebhookCreate,
        WEBHOOK_READ_ONLY,
        status=201,
    ),
    Operation(
        "GET", _WEBHOOK, "settings.read", "getWebhook", "Show a webhook", webhook_handlers.get_webhook, matches=True
    ),
    Operation(
        "PUT",
        _WEBHOOK,
        "settings.write",
        "replaceWebhook",
        "Change a webhook",
        webhook_handlers.update_webhook,
        WebhookUpdate,
        WEBHOOK_READ_ONLY,
        matches=True,
    ),
    Operation(
        "PATCH",
        _WEBHOOK,
        "settings.write",
        "updateWebhook",
        "Change a webhook",
        webhook_handlers.update_webhook,
        WebhookUpdate,
        WEBHOOK_READ_ONLY,
        matches=True,
    ),
    Operation(
        "DELETE",
        _WEBHOOK,
        "settings.write",
        "deleteWebhook",
        "Delete a webhook",
        webhook_handlers.delete_webhook,
        matches=True,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/rotate-secret",
        "settings.write",
        "rotateWebhookSecret",
        "Sign with another secret",
        webhook_handlers.rotate_secret,
        matches=True,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/test",
        "settings.write",
        "testWebhook",
        "Send a test event to a webhook",
        webhook_handlers.test_webhook,
    ),
    Operation(
        "GET",
        f"{_WEBHOOK}/deliveries",
        "settings.read",
        "listDeliveries",
        "List deliveries",
        webhook_handlers.list_deliveries,
        query=queries.LIST_DELIVERIES,
    ),
    Operation(
        "POST",
        f"{_WEBHOOK}/deliveries/{{delivery_id}}/redeliver",
        "settings.write",
        "redeliver",
        "Send a delivery once more",
        webhook_handlers.redeliver,
    ),
    Operation(
        "GET",
        f"{V1}/config/export",
        ADMIN,
        "exportConfig",
        "The configuration as one document",
        transfer.export_config,
        query=queries.EXPORT_CONFIG,
        passphrase=True,
    ),
    Operation(
        "POST",
        f"{V1}/config/import",
        ADMIN,
        "importConfig",
        "Make the configuration what a document says, or say what that would change",
        transfer.import_config,
        ConfigDocument,
        query=queries.IMPORT_CONFIG,
        matches=True,
        passphrase=True,
    ),
    Operation(
        "GET",
        f"{V1}/audit",
        ADMIN,
        "queryAudit",
        "Search the audit trail",
        audit.query_audit,
        role="auditor",
        query=queries.QUERY_AUDIT,
    ),
)
