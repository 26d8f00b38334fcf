"""Proxies: their configuration, what can be done with them, and what they would do with a request."""

from __future__ import annotations

from api.operations import query_parameters
from api.operations.operation import PROXY, V1, Operation
from api.resources import access, proxies
from config.model.proxies import READ_ONLY_FIELDS, ProxyCreate, ProxyUpdate

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "GET",
        f"{V1}/proxies",
        "proxy.read",
        "listProxies",
        "List proxies",
        proxies.list_proxies,
        description=(
            "Returns one page of proxies, the oldest first, each with its actual state and statistics. `status` "
            "and `protocol` filter the list."
        ),
        query=query_parameters.LIST_PROXIES,
        scoped=True,
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
        description=(
            "Binds the listening socket, stores the proxy and starts its process. If the address cannot be "
            "bound, the response is 400 on `port` or `host`, and nothing is stored."
        ),
        status=201,
    ),
    Operation(
        "GET",
        PROXY,
        "proxy.read",
        "getProxy",
        "Show a proxy",
        proxies.get_proxy,
        description=(
            "Returns the configuration of the proxy, its actual state under `runtime` and its statistics. The "
            "`ETag` of the response can be sent as `If-Match` with an update."
        ),
        matches=True,
    ),
    Operation(
        "PUT",
        PROXY,
        "proxy.write",
        "replaceProxy",
        "Update a proxy",
        proxies.update_proxy,
        ProxyUpdate,
        READ_ONLY_FIELDS,
        description=(
            "Changes the given fields and keeps all others; PUT and PATCH are the same here. The change applies "
            "to new connections at once and ends none, unless it takes a client's access away."
        ),
        matches=True,
    ),
    Operation(
        "PATCH",
        PROXY,
        "proxy.write",
        "updateProxy",
        "Update a proxy",
        proxies.update_proxy,
        ProxyUpdate,
        READ_ONLY_FIELDS,
        description=(
            "Changes the given fields and keeps all others. The change applies to new connections at once and "
            "ends none, unless it takes a client's access away."
        ),
        matches=True,
    ),
    Operation(
        "DELETE",
        PROXY,
        "proxy.delete",
        "deleteProxy",
        "Delete a proxy",
        proxies.delete_proxy,
        description=(
            "Closes the listening socket, drains open connections and removes the configuration. The statistics "
            "and access records of the proxy are kept until their retention ends."
        ),
        matches=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/start",
        "proxy.write",
        "startProxy",
        "Start a proxy",
        proxies.start_proxy,
        description=("Sets the proxy to `active` and starts its process. `changed` is false if it was active already."),
        matches=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/stop",
        "proxy.write",
        "stopProxy",
        "Stop a proxy",
        proxies.stop_proxy,
        description=(
            "Sets the proxy to `inactive`, closes its listening socket and drains open connections. `changed` is "
            "false if it was inactive already."
        ),
        matches=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/restart",
        "proxy.write",
        "restartProxy",
        "Restart a proxy",
        proxies.restart_proxy,
        description=(
            "Starts a new process on the same listening socket and drains the old one, so no connection is "
            "refused. An inactive proxy is started."
        ),
        matches=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/test",
        "proxy.write",
        "testProxy",
        "Test a proxy with one request",
        proxies.test_proxy,
        proxies.ProxyTest,
        description=(
            "Sends one GET through the proxy to `url`, as an authorized client would. The response is 200 also "
            "when the test fails; `status` and `error` in `test_result` have the outcome."
        ),
        optional_body=True,
    ),
    Operation(
        "POST",
        f"{PROXY}/explain",
        "proxy.read",
        "explainAccess",
        "Explain the decision about a request",
        access.explain_access,
        access.ExplainBody,
        description=(
            "Evaluates the access rules, limits and the egress guard for a client and a target, without sending "
            "anything to the target. The response names the rule that decides. `user` is taken to have the right "
            "password; without it the client has no credentials."
        ),
    ),
)
