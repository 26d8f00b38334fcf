"""Proxies: their configuration, actions on them, and explanations of their decisions."""

from __future__ import annotations

from api.engine.operation import V1, create, delete, get, post, resource, update
from api.openapi.schemas.base import Deleted
from api.openapi.schemas.explanations import Explanation
from api.openapi.schemas.proxies import ActedProxy, NewProxy, OneProxy, Proxies, TaggedProxies, Tested
from api.resources import access, proxies, proxy_queries
from config.model.proxies import READ_ONLY_FIELDS, ProxyCreate, ProxyUpdate
from config.model.tagging import ProxyTagging

_ONE = "/{proxy_id}"

TABLE = resource(f"{V1}/proxies", read="proxy.read", write="proxy.write", delete="proxy.delete")(
    get("", "listProxies", proxies.list_proxies, Proxies, query=proxy_queries.ListProxies, scoped=True),
    create("", "createProxy", proxies.create_proxy, NewProxy, body=ProxyCreate, read_only=READ_ONLY_FIELDS),
    post(
        "/tags",
        "tagProxies",
        proxies.tag_proxies,
        TaggedProxies,
        body=ProxyTagging,
    ),
    get(_ONE, "getProxy", proxies.get_proxy, OneProxy, if_match=True),
    *update(
        _ONE,
        ("replaceProxy", "updateProxy"),
        proxies.update_proxy,
        OneProxy,
        body=ProxyUpdate,
        read_only=READ_ONLY_FIELDS,
        if_match=True,
    ),
    delete(_ONE, "deleteProxy", proxies.delete_proxy, Deleted, if_match=True),
    post(f"{_ONE}/start", "startProxy", proxies.start_proxy, ActedProxy, if_match=True),
    post(f"{_ONE}/stop", "stopProxy", proxies.stop_proxy, ActedProxy, if_match=True),
    post(
        f"{_ONE}/restart",
        "restartProxy",
        proxies.restart_proxy,
        ActedProxy,
        if_match=True,
        audit="proxy.restarted",
    ),
    post(
        f"{_ONE}/test",
        "testProxy",
        proxies.test_proxy,
        Tested,
        body=proxies.ProxyTest,
        optional_body=True,
        audit="proxy.tested",
    ),
    post(
        f"{_ONE}/explain",
        "explainAccess",
        access.explain_access,
        Explanation,
        "proxy.read",
        body=access.ExplainBody,
        audit=False,
    ),
)
