"""Which form each operation answers with. A test proves that no operation is left out, and none is told of twice."""

from __future__ import annotations

from pydantic import BaseModel

from api.openapi import account_forms, forms, proxy_forms

ANSWERS: dict[str, type[BaseModel]] = {
    "health": forms.SmallHealth,
    "livez": forms.Alive,
    "readyz": forms.SmallHealth,
    "getHealth": forms.HealthReport,
    "getStatus": forms.SystemStatus,
    "login": forms.SignedIn,
    "refreshToken": forms.TokenPair,
    "validateToken": forms.ValidToken,
    "logout": forms.Message,
    "authorizeOAuth2": forms.Authorization,
    "finishOAuth2": forms.SignedIn,
    "testAuth": forms.WhoAmI,
    "listApiKeys": forms.ApiKeys,
    "createApiKey": forms.NewApiKey,
    "revokeApiKey": forms.Revoked,
    "listProxies": proxy_forms.Proxies,
    "createProxy": proxy_forms.NewProxy,
    "getProxy": proxy_forms.OneProxy,
    "replaceProxy": proxy_forms.OneProxy,
    "updateProxy": proxy_forms.OneProxy,
    "deleteProxy": forms.Deleted,
    "startProxy": proxy_forms.ActedProxy,
    "stopProxy": proxy_forms.ActedProxy,
    "restartProxy": proxy_forms.ActedProxy,
    "testProxy": proxy_forms.Tested,
    "explainAccess": proxy_forms.Explanation,
    "listConnections": proxy_forms.Connections,
    "endConnections": proxy_forms.EndedMany,
    "endConnection": proxy_forms.Ended,
    "listAccounts": account_forms.Accounts,
    "createAccount": account_forms.OneAccount,
    "getAccount": account_forms.OneAccount,
    "replaceAccount": account_forms.OneAccount,
    "updateAccount": account_forms.OneAccount,
    "deleteAccount": account_forms.DeletedAccount,
    "resetAccountUsage": account_forms.OneAccount,
    "listUsers": forms.Users,
    "createUser": forms.OneUser,
    "getUser": forms.OneUser,
    "replaceUser": forms.OneUser,
    "updateUser": forms.OneUser,
    "deleteUser": forms.Deleted,
    "queryLogs": proxy_forms.Logs,
}
