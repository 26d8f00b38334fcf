"""Proxies: their configuration, what can be done with them, and what they would do with a request."""

from __future__ import annotations

from api import queries
from api.operations.operation import PROXY, V1, Operation
from api.resources import access, proxies
from config.proxies import READ_ONLY_FIELDS, ProxyCreate, ProxyUpdate

OPERATIONS: tuple[Operation, ...] = (
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
    Operation("GET", PROXY, "proxy.read", "getProxy", "Show a proxy", proxies.get_proxy, matches=True),
    Operation(
        "PUT",
        PROXY,
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
        PROXY,
        "proxy.write",
        "updateProxy",
        "Change a proxy",
        proxies.update_proxy,
        ProxyUpdate,
        READ_ONLY_FIELDS,
        matches=True,
    ),
    Operation("DELETE", PROXY, "proxy.delete", "deleteProxy", "Delete a proxy", proxies.delete_proxy, matches=True),
    Operation(
        "POST", f"{PROXY}/start", "proxy.write", "startProxy", "Start a proxy", proxies.start_proxy, matches=True
    ),
    Operation("POST", f"{PROXY}/stop", "proxy.write", "stopProxy", "Stop a proxy", proxies.stop_proxy, matches=True),
    Operation(
        "POST",
        f"{PROXY}/restart",
        "proxy.write",
        "restartProxy",
        "Restart a proxy",
        proxies.restart_proxy,
        matches=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/test",
        "proxy.write",
        "testProxy",
        "Send one request through a proxy",
        proxies.test_proxy,
        proxies.ProxyTest,
        optional_body=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/explain",
        "proxy.read",
        "explainAccess",
        "Say what would happen to a request, and which rule decides",
        access.explain_access,
        access.ExplainBody,
    ),
)
