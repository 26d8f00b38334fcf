"""What a proxy refuses or fails to do, as data: the HTTP status, the error type of RFC 9209 and a sentence.

One table from what went wrong to the client's error; the same word stands in `Proxy-Status`, in the access record
(`reason`) and in the counters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

PROXY_NAME = "proxyfleet"
"""How this proxy calls itself in `Via` and `Proxy-Status`."""


class Decider(NamedTuple):
    """What of the configuration decided, as clients may know it: each is empty where there is none.

    `rule` is the name of a policy's rule, or its place; of an access rule the field and the place in it, without the
    entry, which may have an address of a name. `named_list` is the list that the target is in. `where` names policy and
    rule in a sentence.
    """

    policy: str = ""
    rule: str = ""
    named_list: str = ""
    where: str = ""


NOTHING_DECIDED: Final = Decider()


@dataclass(frozen=True, slots=True)
class Failure:
    """`kind` is the error type of RFC 9209 section 2.3; `close` says that the client's connection can't go on.

    `rule` is the word of the access rule or limit that decided, where it was one. `retry_after` is seconds, 0 when
    it is unknown. `entry` is what of the configuration decided, as the record has it; the client gets `decider` alone.
    `retryable` None: as all failures of this reason (`refusals`).
    """

    status: int
    kind: str
    detail: str
    close: bool = False
    rule: str = ""
    retry_after: int = 0
    entry: str = ""
    recorded: str = ""
    """The sentence in the access record where the client is not to know all of it, such as the address of a name."""
    decider: Decider = NOTHING_DECIDED
    disclosed: bool = True
    """False: the client does not get to know the decider."""
    retryable: bool | None = None

    @property
    def sentence(self) -> str:
        """The detail and what decided."""
        return f"{self.detail} ({self.decider.where})" if self.decider.where else self.detail

    @property
    def disclosed_sentence(self) -> str:
        """The same as the client may read it."""
        return self.sentence if self.disclosed else self.detail

    def undisclosed(self) -> Failure:
        """The same for a client that does not get to know what decided."""
        return replace(self, disclosed=False)

    @property
    def reason(self) -> str:
        """The one word for it in the access record and in the counters: the rule, where one decided."""
        return self.rule or self.kind


class Refused(Exception):
    """A message is rejected. Carries the `Failure`."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


def malformed(detail: str) -> Refused:
    """The client's message is not HTTP that everybody reads alike: 400, and the connection ends."""
    return Refused(Failure(400, "http_request_error", detail, close=True))


def too_large(detail: str) -> Refused:
    """The client's head is over a limit: 431, and the connection ends."""
    return Refused(Failure(431, "http_request_error", detail, close=True))


def bad_response(detail: str) -> Refused:
    """The origin's message is not HTTP that everybody reads alike: 502."""
    return Refused(Failure(502, "http_protocol_error", detail))


class UpstreamRefusesUs(Refused):
    """An upstream proxy wants other credentials than this proxy has, and has done nothing with the request."""


class AskAnotherUpstream(Exception):
    """The upstream proxy has failed itself, and another one may be asked."""


CREDENTIALS_REJECTED = "proxy_configuration_error"
"""The error type of RFC 9209 for credentials of this proxy that an upstream rejects."""
UPSTREAM_REFUSES_US = Failure(502, CREDENTIALS_REJECTED, "the upstream proxy does not accept this proxy's credentials")
"""502 and not 407, since the client can't change them."""


def dns_failed(detail: str) -> Failure:
    """The name does not resolve."""
    return Failure(502, "dns_error", detail)


def dns_unanswered(host: str, why: str, timed_out: bool) -> Failure:
    """No name server has said what addresses the name has. `why` is for the record alone: it has addresses of name
    servers, and whether these refuse, close or are silent."""
    status, kind = (504, "dns_timeout") if timed_out else (502, "dns_error")
    detail = f"{host} does not resolve: no name server has responded"
    return Failure(status, kind, detail, recorded=why, retryable=True)


def connection_refused(detail: str) -> Failure:
    """The target refused the connection."""
    return Failure(502, "connection_refused", detail)


def unroutable(detail: str) -> Failure:
    """There is no route to the target."""
    return Failure(502, "destination_ip_unroutable", detail)


OTHER_FAMILY = unroutable("every address of the target is of another address family than this proxy's own address")
NO_SOURCE_ADDRESS = "no_source_address"


def no_source_address(rule: str) -> Failure:
    """What says where the request leaves from (`rule`) has no address of the target's family."""
    detail = "every address of the target is of an address family that this request has no source address of"
    return Failure(502, "destination_ip_unroutable", detail, rule=NO_SOURCE_ADDRESS, entry=rule)


def host_unreachable(detail: str) -> Failure:
    """There is a route to its network, but not to the host."""
    return Failure(502, "destination_unavailable", detail)


def connection_timed_out(detail: str) -> Failure:
    """The connection was not made in time."""
    return Failure(504, "connection_timeout", detail)


def connection_lost(detail: str) -> Failure:
    """The origin's connection ended before its response."""
    return Failure(502, "connection_terminated", detail)


RESPONSE_TIMED_OUT = Failure(504, "http_response_timeout", "the origin did not respond in time")


PROHIBITED = "destination_ip_prohibited"


def prohibited(detail: str) -> Failure:
    """The egress guard denies the target."""
    return Failure(403, PROHIBITED, detail, entry="egress guard")


def client_denied(rule: str, entry: str = "") -> Failure:
    """An access rule denies the client; `rule` is its word. It has not authenticated, so it isn't sent what decided."""
    detail = "the access rules of this proxy don't allow this client"
    return Failure(403, "http_request_denied", detail, close=True, rule=rule, entry=entry)


def target_denied(rule: str, entry: str = "", decider: Decider = NOTHING_DECIDED) -> Failure:
    """An access rule of the proxy denies the target; `rule` is its word."""
    detail = "the access rules of this proxy don't allow this target"
    return Failure(403, "http_request_denied", detail, rule=rule, entry=entry, decider=decider)


def destination_denied(owner: str, rule: str, entry: str, decider: Decider = NOTHING_DECIDED) -> Failure:
    """A rule of an account or a credential (`owner`) denies the target."""
    detail = f"this {owner} doesn't allow this target"
    return Failure(403, "http_request_denied", detail, rule=f"{owner}_{rule}", entry=entry, decider=decider)


POLICY_DENIED = "policy_denied"


def denied_by_policy(reason: str, decider: Decider, entry: str) -> Failure:
    """A rule of a policy denies it: `reason` is the operator's sentence for the client."""
    detail = reason or "a policy of this proxy does not allow this request"
    return Failure(403, "http_request_denied", detail, rule=POLICY_DENIED, entry=entry, decider=decider)


TLS_NAME_DENIED = "tls_name_denied"


def tls_name_denied(kind: str, detail: str, entry: str) -> Failure:
    """The TLS handshake in a tunnel doesn't name what the request did, or may name. `kind` is how: `mismatch`,
    `no_name`, `not_tls`, `malformed`, `timeout`; `entry` is what of the configuration wants it checked. The client gets
    a TLS alert, so all of it is for the record."""
    return Failure(403, "http_request_denied", f"{kind}: {detail}", rule=TLS_NAME_DENIED, entry=entry)


def kind_of_denied_name(detail: str) -> str:
    """The `kind` of a failure of `tls_name_denied`, from its detail as records have it."""
    return detail.partition(":")[0]


def goes_another_way(host: str) -> Failure:
    """By a policy, connections to this address of the target go another way than the request."""
    detail = f"{host} has no address that the policies of this proxy let this request connect to"
    return Failure(403, "http_request_denied", detail, rule=POLICY_DENIED)


def no_such_pool(pool: str, entry: str) -> Failure:
    """A policy names a pool that this proxy doesn't have."""
    return Failure(
        503, "destination_unavailable", "no upstream proxy can be used", entry=entry, recorded=f"no pool {pool}"
    )


NO_UPSTREAM_MATCHES = Failure(
    502,
    "destination_unavailable",
    "no upstream proxy has all that the user name asks for",
    rule="no_upstream_matches",
)
"""Labels in the user name that no upstream has together."""


def out_of_connections(limit: int) -> Failure:
    """`max_connections` is reached."""
    return Failure(503, "connection_limit_reached", f"this proxy serves at most {limit} connections", close=True)


# --- limits and accounts: each has one word, reported as the rule ---

LIMIT_REASONS = (
    "client_connection_limit",
    "client_request_limit",
    "account_connection_limit",
    "account_request_limit",
    "account_client_limit",
    "account_quota_reached",
    "account_disabled",
    "account_expired",
    "account_network_not_allowed",
    "outside_schedule",
    "account_destination_denied",
    "account_destination_not_allowed",
    "credential_destination_not_allowed",
    "credential_expired",
    "credential_network_not_allowed",
    "credential_connection_limit",
    "credential_quota_reached",
    "quota_unavailable",
    "rule_connection_limit",
    "rule_request_limit",
)


def client_connections(limit: int) -> Failure:
    """`limits.connections_per_client` is reached."""
    detail = f"this proxy serves at most {limit} connections of one client"
    return Failure(429, "connection_limit_reached", detail, close=True, rule="client_connection_limit")


def client_requests(limit: int, wait: int) -> Failure:
    """`limits.requests_per_minute` is reached."""
    detail = f"this proxy takes at most {limit} requests a minute from one client"
    return Failure(429, "http_request_denied", detail, rule="client_request_limit", retry_after=wait)


def account_connections(limit: int) -> Failure:
    """`limits.connections` of an account is reached."""
    detail = f"this account has at most {limit} connections"
    return Failure(429, "connection_limit_reached", detail, close=True, rule="account_connection_limit")


def account_requests(limit: int, wait: int) -> Failure:
    """`limits.requests_per_minute` of an account is reached."""
    detail = f"this account has at most {limit} requests a minute"
    return Failure(429, "http_request_denied", detail, rule="account_request_limit", retry_after=wait)


def account_clients(limit: int, wait: int, owner: str = "account") -> Failure:
    """`limits.clients` of an account or a credential (`owner`) is reached; `wait` is seconds until one address has been
    silent for long enough, if it stays so."""
    addresses = "one address" if limit == 1 else f"{limit} addresses"
    detail = f"this {owner} may be used from at most {addresses} at a time"
    return Failure(429, "http_request_denied", detail, rule="account_client_limit", retry_after=wait)


def rule_connections(limit: int, decider: Decider, entry: str) -> Failure:
    """`limits.connections` of a rule is reached."""
    detail, rule = f"at most {limit} requests and tunnels at a time", "rule_connection_limit"
    return Failure(429, "connection_limit_reached", detail, rule=rule, entry=entry, decider=decider)


def rule_requests(limit: int, wait: int, decider: Decider, entry: str) -> Failure:
    """`limits.requests_per_minute` of a rule is reached."""
    detail, rule = f"at most {limit} requests a minute", "rule_request_limit"
    return Failure(429, "http_request_denied", detail, rule=rule, retry_after=wait, entry=entry, decider=decider)


def account_quota(period: str, wait: int) -> Failure:
    """The quota of an account is used up; `wait` is seconds to the next period, 0 when there is none."""
    detail = "the quota of this account is used up" + (f" for this {period}" if period != "total" else "")
    ends = period != "total"
    return Failure(429, "http_request_denied", detail, rule="account_quota_reached", retry_after=wait, retryable=ends)


# Sent only after the right password.
ACCOUNT_DISABLED = Failure(403, "http_request_denied", "this account is disabled", rule="account_disabled")
ACCOUNT_EXPIRED = Failure(403, "http_request_denied", "this account has expired", rule="account_expired")
ACCOUNT_NETWORK = Failure(
    403, "http_request_denied", "this account may not be used from this address", rule="account_network_not_allowed"
)

OUTSIDE_SCHEDULE = Failure(
    403, "http_request_denied", "this account may not be used at this time", rule="outside_schedule"
)
CREDENTIAL_EXPIRED = Failure(403, "http_request_denied", "this credential has expired", rule="credential_expired")
CREDENTIAL_NETWORK = Failure(
    403,
    "http_request_denied",
    "this credential may not be used from this address",
    rule="credential_network_not_allowed",
)
CREDENTIAL_QUOTA = Failure(
    429, "http_request_denied", "the quota of this credential is used up", rule="credential_quota_reached"
)
QUOTA_UNAVAILABLE = Failure(
    503,
    "proxy_internal_error",
    "what is left of this quota is not known at the moment",
    rule="quota_unavailable",
    retry_after=5,
)
"""Of a node without the fleet's database, whose share of what was left is used up."""


def credential_connections(limit: int) -> Failure:
    """`max_connections` of a credential is reached."""
    detail = f"this credential has at most {limit} connections"
    return Failure(429, "connection_limit_reached", detail, close=True, rule="credential_connection_limit")


OUT_OF_DESCRIPTORS = Failure(503, "proxy_internal_error", "this proxy is out of descriptors")
SOURCE_LOST = Failure(503, "proxy_internal_error", "the source address of this proxy is not there")
"""The address that connections are to leave from is none of this machine any more."""


BAD_PROXY_HEADER = "proxy_protocol_error"
LATE_PROXY_HEADER = "proxy_protocol_timeout"


def bad_proxy_header(detail: str) -> Failure:
    """The connection does not begin with a header of the PROXY protocol."""
    return Failure(400, "http_request_error", detail, close=True, rule=BAD_PROXY_HEADER)


PROXY_HEADER_TIMED_OUT = Failure(
    408, "http_request_error", "no header of the PROXY protocol in time", close=True, rule=LATE_PROXY_HEADER
)

TLS_NOT_SPOKEN = "tls_not_spoken"
TLS_CERTIFICATE_REJECTED = "tls_certificate_rejected"
TLS_HANDSHAKE_FAILED = "tls_handshake_failed"
CLIENT_CERTIFICATE_MISSING = "client_certificate_missing"
CLIENT_CERTIFICATE_EXPIRED = "client_certificate_expired"
CLIENT_CERTIFICATE_REVOKED = "client_certificate_revoked"
CLIENT_CERTIFICATE_UNKNOWN_CA = "client_certificate_unknown_ca"
CLIENT_CERTIFICATE_INVALID = "client_certificate_invalid"
TLS_REASONS = (
    TLS_NOT_SPOKEN,
    TLS_CERTIFICATE_REJECTED,
    TLS_HANDSHAKE_FAILED,
    CLIENT_CERTIFICATE_MISSING,
    CLIENT_CERTIFICATE_EXPIRED,
    CLIENT_CERTIFICATE_REVOKED,
    CLIENT_CERTIFICATE_UNKNOWN_CA,
    CLIENT_CERTIFICATE_INVALID,
)
"""How TLS with a client comes to nothing."""
CLIENT_CERTIFICATE_UNMATCHED = "client_certificate_unmatched"


def certificate_unmatched(why: str, recorded: str = "") -> Failure:
    """The client's certificate is good, and no account's, and there are no other credentials.

    The client is not sent what is `recorded`.
    """
    detail = f"the client's certificate {why}"
    known = f"{detail}: {recorded}" if recorded else ""
    return Failure(407, "http_request_denied", detail, rule=CLIENT_CERTIFICATE_UNMATCHED, recorded=known)


CREDENTIALS_WANTED = Failure(407, "http_request_denied", "this proxy wants credentials")
CREDENTIALS_WRONG = Failure(407, "http_request_denied", "the user name or the password is wrong")
UNKNOWN_PARAMETERS = "unknown_parameters"


def unknown_parameters(unknown: str) -> Failure:
    """The user name has parameters that nothing knows, and the proxy rejects them. The client is not sent which."""
    text = "the user name has parameters that this proxy does not know"
    return Failure(407, "http_request_denied", text, rule=UNKNOWN_PARAMETERS, recorded=f"{text}: {unknown}")


BACKEND_FAILED = "auth_backend_failed"


def backend_failed(detail: str) -> Failure:
    """The authentication back end gave no result. The client is not sent what `detail` says."""
    text = "the credentials can't be checked at the moment"
    return Failure(503, "proxy_internal_error", text, rule=BACKEND_FAILED, recorded=detail)


ACCOUNTS_UNAVAILABLE = Failure(
    503, "proxy_internal_error", "the accounts can't be read at the moment", rule="accounts_unavailable", retry_after=1
)
"""The table of accounts decides and can't be read. Accounts of the proxy itself get in all the same."""

NOT_THROUGH_UPSTREAMS = Failure(
    400, "http_request_error", "this proxy has upstreams, which are only asked to connect", close=True
)
LOOP_DETECTED = Failure(502, "proxy_loop_detected", "this proxy has already forwarded this request", close=True)
