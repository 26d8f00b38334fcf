"""Hooks of schemathesis: what is generated stays on this machine, and what the state refuses is no failure.

Hooks act on values that the product would take; what it has to refuse is sent as it was made.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from functools import cache
from typing import Any

import requests
import schemathesis
from hypothesis import strategies
from schemathesis.core.failures import Failure

from config.model import json_patterns
from config.text.upstream_lines import BadUpstreamLine, read_text
from tests.kit.ports import free_port

BASE = os.environ["CONFORMANCE_BASE"]
HOST, PORT = BASE.removeprefix("http://").split(":")[0], int(BASE.rsplit(":", 1)[1])
TOKEN = os.environ["CONFORMANCE_TOKEN"]
PASSWORD = os.environ["CONFORMANCE_PASSWORD"]
OWN_USER = os.environ["CONFORMANCE_USER"]
KNOWN: dict[str, str] = json.loads(os.environ["CONFORMANCE_KNOWN"])
"""Path parameters of resources that exist."""

_ACCOUNT = r"(?:create|update)\[\d+\]\."
"""Where a change of many accounts has one."""
_RULE = r"rules\[\d+\]\."
"""Where a policy has a rule."""

STATE: tuple[tuple[str, str, str], ...] = (
    (r"name|username", r"is in use$", "names are unique"),
    (r"(accounts\[\d+\]\.)?username", r"is (auth\.username|the name of an account)", "names are unique"),
    (r"username", r"is in use|there is an account", "names are unique"),
    (r"upstreams\[\d+\].*", r"is the same upstream|more than once", "no upstream is there twice"),
    (r"(upstreams(\[\d+\].*)?|pool)", r"is this proxy itself|comes back to this proxy", "chains of proxies end"),
    (r"upstreams\[\d+\]\.tls", r"is for https upstreams", "depends on another field"),
    (r"port|host", r"in use|address|permission", "the socket"),
    (r"status", r"inactive|last active administrator", "the proxy is inactive; an administrator has to remain"),
    (r"role|None", r"last active administrator", "an administrator has to remain"),
    (r"None", r"itself, and no source$", "what has no source is not fetched"),
    (r"bind_address.*|.*egress.*", r"of this machine", "addresses are the machine's"),
    (r".*(tls|cert_file|key_file|ca_file)", r"", "files are the machine's"),
    (r"(auth|accounts\[\d+\]|upstreams\[\d+\]\.auth)?\.?(username|password)", r"is required|socks4|bytes", "protocol"),
    (r"accounts", r"at most", "all accounts of a proxy together"),
    (r"(accounts\[\d+\]\.)?expires_at", r"must be in the future", "the clock"),
    (r"current_password", r"", "a password is right or wrong"),
    (r"all", r"must", "filters and `all` exclude each other"),
    (r"email", r"is not an e-mail address", "special-use names and IDNA (RFC 6761, RFC 5891) are no format"),
    (r"server\.(host|port|ssl_enabled)|auth\.enabled", r"", "these can only be what they are"),
    (r"provider", r"is not configured", "one provider is"),
    (r"state", r"begin the sign-in again", "a state is one that the product made"),
    (r"Idempotency-Key", r"was used for another request", "a key is for one request"),
    (r".*", r"the (lower|smaller) one first", "no schema compares two numbers"),
    (r"cursor", r"must be a cursor|other filters", "cursors come from responses"),
    (r"start_time|end_time|offset", r"first page|cursor is given", "depends on another parameter"),
    (r"cursor|sort|account", r"must be left out|must be the same", "depends on another parameter"),
    (r"logging\.output", r"configuration alone", "paths are not written by way of the API"),
    (r"search", r"words", "no schema counts words"),
    (r"headers", r"is set by the sender|is given twice", "names of headers have no case"),
    (r"interval|start_time|end_time", r"points|buckets|before|after", "no schema compares two times"),
    (r"upstreams(\[\d+\])?", r"must be host:port|line \d+|no upstream|the protocol|password|percent", "a grammar"),
    (r"name|username|", r"is the name of|has the name and the url", "names are unique in a document"),
    (r"username", r"differ in case", "names are unique"),
    (
        rf"({_ACCOUNT}|accounts\[\d+\]\.|auth\.)?(username|certificates(\[\d+\])?)",
        r"is the name of|is that of",
        "names are unique",
    ),
    (rf"({_ACCOUNT})?(plan|proxies\.ids(\[\d+\])?)", r"there is no", "plans and proxies are those that are stored"),
    (r".*(policy|pool|destinations\[\d+\])", r"there is no (policy|pool|list)", "objects are those that are stored"),
    (r"pool", r"takes the place of upstreams", "depends on another field"),
    (r"name", r"in use by", "what is in use keeps its name"),
    (r"(update|delete)\[\d+\](\.id)?", r"there is no such account|given twice", "accounts are those that are stored"),
    (r"lines\[\d+\].*", r"", "no schema describes lines"),
    (
        r"account|scope\.\w+(\[\d+\])?",
        r"there is no|must not be given beside|is for a key",
        "objects are those that are stored",
    ),
    (r"(source\.)?headers\..*", r"has no value", "whether it is there already"),
    (r"source\.headers", r"without a url", "depends on another field"),
    (r"tls\.client_auth", r"is for a proxy with tls\.client_ca", "depends on another field"),
    (r"dns\.servers\[\d+\]", r"proxy\.dns_allow|never|itself", "which name servers may be asked is configured"),
    (r"dns\.min_ttl", r"above dns\.max_ttl", "no schema compares two numbers"),
    (r"listen_port", r"must be a port of the proxy", "ports are those of the proxy"),
    (r"workers|port|sleep_after", r"processes", "all proxies together have so many processes"),
    (r"user", r"must be left out", "depends on another parameter"),
    (r"permissions", r"which scope\.accounts needs", "depends on another field"),
    (r"None", r"of the proxy .* alone", "some accounts are changed with their proxy"),
    (
        rf"({_ACCOUNT}|{_RULE}match\.)?schedule\.timezone",
        r"of the IANA database",
        "which time zones there are, the machine knows",
    ),
    (rf"{_RULE}(match\.tunnel|action\.tls_name)", r"is for rules without", "depends on other fields"),
    (rf"{_RULE}name", r"is the name of", "names are unique in a policy"),
    (
        rf"{_RULE}action\.(reason|egress|tls_name|headers|limits)",
        r"is for an action|has no meaning",
        "depends on `use`",
    ),
    (
        rf"({_RULE}action\.)?headers\.(set|remove).*",
        r"must not name|which `set` has|forwarded adds|characters in names and values|the whole connection",
        "fields depend on each other, and names have no case",
    ),
    (rf"{_RULE}.*", r"there is no (pool|list)", "pools and lists are those that are stored"),
    (r"ids\[\d+\]", r"there is no such proxy|would make|is in add_tags", "proxies and their tags are stored"),
    (r".*(entries|destinations)\[\d+\]", r"is no name", "no pattern knows which letters a name may have"),
    (r"entries\[\d+\]", r"must be", "what an entry may be depends on the kind of the list"),
    (r"source\.url", r"is required", "whether it is there already"),
    (r"source", r"is required: a list of kind geo", "the kind of a list, or its source, is there already"),
    (r"source\.(file|format)", r"is only for|must be", "depends on the kind of the list, or on url"),
    (r"kind", r"is in use", "who names the list is stored"),
    (rf"({_ACCOUNT})?(password|password_hash)", r"must be left out", "depends on another field"),
    (
        rf"({_ACCOUNT}|(?:proxies\[\d+\]\.)?accounts\[\d+\]\.)?password",
        r"8 characters at least|tried first|must not be the user name",
        "a setting permits weak ones",
    ),
    (r"metadata", r"must be left out", "depends on another parameter"),
    (rf"({_ACCOUNT})?expires_at", r"must be in the future", "the clock"),
    (r"tags|name|auth", r"is the name of|would have two|two accounts", "names are unique for each proxy"),
    (r"(users\[\d+\]\.)?username", r"scripts|not seen|normal form|colon|at most|a blank", "no pattern knows scripts"),
    (r"(users\[\d+\]\.)?password", r"tried first|user name", "no pattern knows what is guessed first"),
    (r"users|status|role|permissions", r"your own account", "callers keep their own"),
    (r"port|protocol|password|events|kind", r"is required for a new", "whether it is there already"),
    (r"port|protocol|events|kind", r"is required in a minimal document", "depends on another field"),
    (r"upstreams\[\d+\]\.auth\.password", r"is null", "whether it is there already"),
    (r"secrets.*", r"", "keys are random"),
    (r"object_id", r"was not changed (after|by)", "which objects were changed is stored"),
    (r"[a-z_]+\..+", r"was (changed|removed) since", "what was changed after a revision is stored"),
    (
        r"(proxies|users|webhooks|plans|accounts)\.[a-z]+_\w+\..*",
        r"",
        "a restored state is checked with the present one",
    ),
    (r"X-Passphrase", r"", "depends on the query or the body"),
)
"""Refusals of what is valid by its schema, as (field, error, reason): the schema can't know what they are about."""

DISCARD = 9
"""The port of the discard service, which does not listen."""
REACH_OUT = ("testProxy", "createWebhook", "updateWebhook", "replaceWebhook")
"""What has a `url` that is asked for, now or later."""
LISTS = ("createList", "updateList", "replaceList")
POOLS = ("createPool", "updatePool", "replacePool")

_SECTION = re.compile(r"^(?:(?:proxies|users|webhooks|lists|pools|policies)\[\d+\]|settings)(?:\.|$)")
"""Where a document of an import has a resource."""
_LOOKED_UP = re.compile(r"^((?:[A-Za-z]+://)?)[A-Za-z0-9_.-]*[A-Za-z_-][A-Za-z0-9_.-]*(?=[:/?#]|$)")
"""A name that would be asked of the DNS."""
_numbers = itertools.count()
_from_regex = strategies.from_regex
strategies.from_regex = cache(lambda regex, **more: strategies.deferred(lambda: _from_regex(regex, **more)))
"""A pattern of thousands of characters is at many places: its strategy is made once, and not anew for a filter."""


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: dict[str, Any]) -> None:
    """The case, changed where it would reach beyond this machine or end the run."""
    operation = _operation(case)
    parameters = case.path_parameters
    if not operation.startswith(("delete", "revoke")) and next(_numbers) % 4:
        for name, value in KNOWN.items():
            if name in parameters and isinstance(parameters[name], str):
                parameters[name] = KNOWN["with_accounts"] if name == "proxy_id" and "username" in parameters else value
    if case.method.upper() in ("PUT", "PATCH", "DELETE") and parameters.get("user_id") == OWN_USER:
        parameters["user_id"] = "usr_unknown"
    if operation in ("importConfig", "restoreRevision", "undoRevision", "reapplyLostChanges") and isinstance(
        case.query, dict
    ):
        case.query["dry_run"] = "true"
    query = case.query if isinstance(case.query, dict) else {}
    if operation == "tailLogs" and str(query.get("timeout", "20")) in map(str, range(1, 61)):
        query["timeout"] = "1"  # it may wait, but not for so long
    if isinstance(case.body, dict):
        make_harmless(operation, case.body)


def make_harmless(operation: str, body: dict[str, Any]) -> None:
    """Listeners on loopback at free ports; upstreams, targets and tests there too; names of their own."""
    if operation in ("createProxy", "updateProxy", "replaceProxy"):
        _harmless_proxy(body)
        if operation == "createProxy" and _matches(json_patterns.PLAIN, body.get("name")) and len(body["name"]) <= 100:
            body["name"] = f"{body['name'][:80]}{next(_numbers)}"
    elif operation == "importConfig":
        for index, entry in enumerate(body["proxies"] if isinstance(body.get("proxies"), list) else ()):
            if isinstance(entry, dict):
                _harmless_proxy(entry, reserved=index < 5)  # of thousands each would take one from other tests
        if isinstance(body.get("settings"), dict):
            _keep_the_api(body["settings"])
    elif operation in ("updateSettings", "replaceSettings"):
        _keep_the_api(body)
    elif operation in REACH_OUT:
        _local_url(body)
    elif operation in LISTS and isinstance(body.get("source"), dict):
        _local_url(body["source"])
    elif operation in POOLS:
        _harmless_upstreams(body)
    elif operation == "rotateSigningKey" and body.get("revoke_previous") is True:
        body["revoke_previous"] = False  # the run's own token would end
    elif operation == "explainAccess" and _matches(json_patterns.TARGET, body.get("target")):
        body["target"] = _LOOKED_UP.sub(r"\1localhost", body["target"], count=1)


def _local_url(body: dict[str, Any]) -> None:
    if _matches(json_patterns.WEB_URL, body.get("url")):
        body["url"] = re.sub(r"(?i)^(https?)://[^/?#]*", r"\1://127.0.0.1:1", body["url"])[:2048]


def _harmless_proxy(body: dict[str, Any], reserved: bool = True) -> None:
    _loopback(body)
    if _is_port(body.get("port")):
        body["port"] = free_port() if reserved else DISCARD
    _harmless_upstreams(body)


def _harmless_upstreams(body: dict[str, Any]) -> None:
    upstreams = body.get("upstreams")
    for index, upstream in enumerate(upstreams if isinstance(upstreams, list) else ()):
        if isinstance(upstream, dict):
            _loopback(upstream, json_patterns.UPSTREAM_HOST)
        elif _is_list(upstream):
            upstreams[index] = f"127.1.{index >> 8 & 255}.{index & 255}:{DISCARD}"
    if _is_list(upstreams):
        body["upstreams"] = f"127.1.0.1:{DISCARD}"


def _is_list(value: Any) -> bool:
    """Is it a text that names upstreams?"""
    try:
        return isinstance(value, str) and bool(read_text(value))
    except BadUpstreamLine:
        return False


def _keep_the_api(body: dict[str, Any]) -> None:
    """The API stays where it is, has room for the run and doesn't lock it out."""
    server, auth = body.get("server"), body.get("auth")
    if isinstance(server, dict):
        if _matches(json_patterns.HOST, server.get("host")) and len(server["host"]) <= 253:
            server["host"] = HOST
        if _is_port(server.get("port")):
            server["port"] = PORT
        if _is_port(server.get("max_connections")):
            server["max_connections"] = 1000
    if isinstance(auth, dict) and _is_port(auth.get("max_login_attempts")) and auth["max_login_attempts"] <= 1000:
        auth["max_login_attempts"] = 1000


def _loopback(body: dict[str, Any], pattern: str = json_patterns.HOST) -> None:
    if _matches(pattern, body.get("host")) and len(body["host"]) <= 253:
        body["host"] = "127.0.0.1"


def _matches(pattern: str, value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch(pattern, value) is not None


def _is_port(value: Any) -> bool:
    return (
        isinstance(value, (int, float)) and not isinstance(value, bool) and value == int(value) and 1 <= value <= 65535
    )


@schemathesis.auth(refresh_interval=None)
class Conformance:
    """The token of the run; for signing out one that may end."""

    def get(self, case: Any, _context: Any) -> str:
        """A token."""
        return fresh_token() if _operation(case) == "logout" else TOKEN

    def set(self, case: Any, data: str, _context: Any) -> None:
        """Send it."""
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}


def _operation(case: Any) -> str:
    return str(case.operation.definition.raw.get("operationId"))


def fresh_token() -> str:
    """A token for one sign-out."""
    body = {"username": "conformance", "password": PASSWORD}
    response = requests.post(f"{BASE}/api/v1/auth/login", json=body, timeout=30)
    return str(response.json()["data"]["access_token"])


@schemathesis.hook
def filter_failure(_context: Any, failure: Failure, _case: Any, response: Any) -> bool:
    """Whether it is one: valid data may be refused for a reason of `STATE`, and for nothing else."""
    if type(failure).__name__ != "RejectedPositiveData" or response.status_code != 400:
        return True
    details = response.json()["error"]["details"]
    problems = details.get("errors", [details])
    return not all(_is_of_state(str(each["field"]), str(each["error"])) for each in problems)


def _is_of_state(field: str, error: str) -> bool:
    field = _SECTION.sub("", field)
    return any(re.fullmatch(name, field) and re.search(text, error) for name, text, _ in STATE)
