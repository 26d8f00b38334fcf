"""What operations read of the query string."""

from __future__ import annotations

from actors.forwarding.connections.table import SORTS
from actors.metrics.catalogue import INTERVALS, NAMES
from api.http.query_schema import Parameter, address, choice, integer, moment, one_address, text
from api.resources.audit import OUTCOMES
from api.resources.logs import LEVELS, OFFSET_MAX, SEARCH_MAX, STATUS_CLASSES, TAIL_MAX
from api.resources.metrics import INCLUDED
from api.resources.oauth import PROVIDERS
from api.resources.proxies import STATUSES
from api.resources.transfer import BOOLEAN, SECRETS
from api.resources.webhooks import DELIVERY_STATES
from config.model.proxies import PROTOCOLS

_A_METRIC = f"({'|'.join(NAMES)})"
METRICS_SCHEMA = {"type": "string", "pattern": f"^{_A_METRIC}(,{_A_METRIC})*$", "maxLength": 500}
_OWN_HOST = text("host", "How clients call this machine; as the request does by default", "proxy.example.com", 253, 1)
PAC = (
    text("tag", "Only proxies with this tag", "office", 64, 1),
    _OWN_HOST,
    choice("direct", "At last without a proxy, when none of them answers", ("true", "false"), "false"),
)
SNIPPETS = (_OWN_HOST,)
LIST_PROXIES = (
    integer("page", "The page, from 1", 1, 1_000_000, 1),
    integer("per_page", "Proxies on a page", 1, 100, 50),
    choice("status", "Only those of this status", STATUSES),
    choice("protocol", "Only those of this protocol", PROTOCOLS),
)
_CONNECTIONS = (
    address("client", "Only of this client or network"),
    text("user", "Only of this user", "alice", lowest=1),
    text("target", "Only to targets with this in their name", "example.com", lowest=1),
    integer("min_age", "Only older than so many seconds", 0, 1_000_000_000, 0),
)
LIST_CONNECTIONS = (
    *_CONNECTIONS,
    choice("sort", "By what; - turns it round", (*SORTS, *(f"-{name}" for name in SORTS)), "-age"),
    integer("limit", "At most so many", 1, 1000, 100),
    integer("offset", "After so many", 0, 1_000_000, 0),
)
END_CONNECTIONS = (*_CONNECTIONS, choice("all", "All, when there is no filter", ("true", "false")))
QUERY_METRICS = (
    moment("start_time", "From the bucket of this moment on; an hour before `end_time` by default"),
    moment("end_time", "Buckets that begin before; now by default"),
    choice("interval", "How wide the buckets are", INTERVALS, "5m"),
    Parameter(
        "metrics", METRICS_SCHEMA, "Names, with commas between; all by default", "requests_per_second,error_rate"
    ),
    text("proxy_id", "Only of this proxy", "prx_0123456789abcdef", 128),
)
REALTIME = (
    text("proxy_id", "Only of this proxy", "prx_0123456789abcdef", 128),
    choice("include", "The proxies too, each as in their list; needs proxy.read", INCLUDED),
)
AUTHORIZE = (choice("provider", "The identity provider: the one that is configured, which is the default", PROVIDERS),)
_LOG_TIMES = (
    moment("start_time", "Not before; an hour ago by default"),
    moment("end_time", "Not after; now by default"),
)
_LOG_FILTERS = (
    choice("level", "Exactly this level", LEVELS),
    choice("min_level", "At least this level", LEVELS),
    one_address("client_ip", "Only of this client"),
    integer("status_code", "Only with this status", 100, 599),
    choice("status_class", "Only with a status of this hundred", STATUS_CLASSES),
    text("user", "Only of this user of the proxy", "alice", 255, 1),
    text("method", "Only with this method; `CONNECT` of tunnels", "GET", 64, 1),
    text("target", "Only with this in the target, whatever the case of A to Z", "example.com", SEARCH_MAX, 1),
    text("reason", "Only with this reason", "dns_error", 128, 1),
    text("search", "Words that must all occur, each as a part of a text", "example.com"),
    text("proxy_id", "Only of this proxy", "prx_0123456789abcdef", 128),
)
_PAGE_END = "lwHLQdrSdIAAAADLQdrSeAQAAADPAAZlFyiYgAAFCc4AvGFO"
_CURSOR = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,200}$"}
_LOG_LIMIT = integer("limit", "At most so many", 1, 1000, 100)
QUERY_LOGS = (
    *_LOG_TIMES,
    *_LOG_FILTERS,
    _LOG_LIMIT,
    integer("offset", "After so many", 0, OFFSET_MAX, 0),
    Parameter("cursor", _CURSOR, "The `next_cursor` of the page before, with the same filters", _PAGE_END),
)
TAIL_LOGS = (
    *_LOG_FILTERS,
    _LOG_LIMIT,
    integer("timeout", "Seconds to wait when there is nothing yet", 0, TAIL_MAX, 20),
    Parameter(
        "cursor",
        _CURSOR,
        "The `next_cursor` of the answer before, or a page's `tail_cursor`; else from now on",
        "kgIC",
    ),
)
EXPORT_LOGS = (*_LOG_TIMES, *_LOG_FILTERS)
LIST_DELIVERIES = (
    choice("status", "Only those of this status", DELIVERY_STATES),
    integer("limit", "At most so many", 1, 1000, 100),
    integer("offset", "After so many", 0, 1_000_000_000, 0),
)
QUERY_AUDIT = (
    moment("start_time", "Not before"),
    moment("end_time", "Not after"),
    text("action", "Exactly this action, or all below `proxy.*`", "proxy.updated", 64),
    choice("outcome", "Only what was done, or what failed", OUTCOMES),
    text("user_id", "Only by this user", "usr_0123456789abcdef", 128),
    text("username", "Only by the user of this name", "alice", 64),
    text("credential_id", "Only by this API key or sign-in", "key_0123456789abcdef", 128),
    one_address("address", "Only from this address"),
    text("request_id", "Only by this request", "req_0123456789abcdef", 128),
    text("resource_type", "Only to resources of this type", "proxy", 64),
    text("resource_id", "Only to this resource", "prx_0123456789abcdef", 128),
    text("resource_name", "Only to resources of this name", "office", 128),
    integer("limit", "At most so many", 1, 1000, 100),
    integer("offset", "After so many", 0, 1_000_000_000, 0),
    Parameter("cursor", {"type": "string", "pattern": "^[0-9]{1,18}$"}, "The `next_cursor` of the page before", "100"),
)

EXPORT_CONFIG = (choice("secrets", "Left out, or sealed under the passphrase in `X-Passphrase`", SECRETS, "omitted"),)
IMPORT_CONFIG = (
    choice("dry_run", "Change nothing, but say what would be changed", BOOLEAN, "false"),
    choice("prune", "Delete what is not in the document, of the kinds that it names", BOOLEAN, "false"),
)


def by_name(declared: tuple[Parameter, ...]) -> dict[str, Parameter]:
    """Found by their names."""
    return {each.name: each for each in declared}
