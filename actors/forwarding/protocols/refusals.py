"""What a client can do about each refusal: the one table that error bodies, the page for browsers and the docs have.

`docs/refusals.md` has the same rows; a test compares them, and that every failure that is sent has one.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.forwarding.protocols.failures import Failure

DOCS: Final = "https://proxyfleet.example/docs/refusals.md"
"""The page of the docs about refusals; behind `#` is the reason. It stands for where the docs are published: a name of
RFC 2606 that no stranger can register, so a refusal never leads to one."""


class Advice(NamedTuple):
    """`title` is the same for all refusals of the reason (RFC 9457 3.1.3). `retryable`: the same request may succeed
    later although nothing was changed; a failure may know better. `next_steps` is a sentence or two."""

    title: str
    retryable: bool
    next_steps: str


_ASK = "Ask the operator of the proxy"
_WAIT = "Send fewer requests"
_AGAIN = "Send the request again later"

ADVICE: Final[dict[tuple[int, str], Advice]] = {
    (400, "http_request_error"): Advice(
        "The request can't be understood",
        False,
        "Send a request that is valid HTTP/1.1 and fits the proxy's protocol. The connection is closed.",
    ),
    (408, "http_request_error"): Advice(
        "The request did not arrive in time", True, "Send the whole head of the request at once, on a new connection."
    ),
    (431, "http_request_error"): Advice(
        "The head of the request is too large", False, "Send fewer or shorter header fields, such as cookies."
    ),
    (407, "http_request_denied"): Advice(
        "Valid credentials are required",
        False,
        "Send the user name and the password, or a credential, of an account of this proxy; check their spelling. "
        f"{_ASK} if you have none.",
    ),
    (407, "client_certificate_unmatched"): Advice(
        "The client's certificate belongs to no account",
        False,
        f"Send other credentials or another certificate. {_ASK} to enter the certificate for your account.",
    ),
    (407, "unknown_parameters"): Advice(
        "The user name has unknown parameters",
        False,
        "Leave out the parameters behind the user name, or correct their spelling.",
    ),
    (403, "http_request_denied"): Advice(
        "The upstream proxy refuses the target", False, f"{_ASK} whether the upstream proxy may go there."
    ),
    (403, "destination_ip_prohibited"): Advice(
        "The target's address is not allowed",
        False,
        f"Request a target with a public address. {_ASK} for an exception if you need this one.",
    ),
    (403, "client_denied"): Advice(
        "The client's address is denied", False, f"Connect from another address. {_ASK} to take yours off the list."
    ),
    (403, "client_not_allowed"): Advice(
        "The client's address is not allowed", False, f"Connect from an allowed address. {_ASK} to add yours."
    ),
    (403, "destination_denied"): Advice(
        "The target is denied", False, f"Request another target. {_ASK} if you need this one."
    ),
    (403, "destination_not_allowed"): Advice(
        "The target is not allowed", False, f"Request an allowed target. {_ASK} to add this one."
    ),
    (403, "policy_denied"): Advice(
        "A policy denies the request",
        False,
        f"Request what the policy allows. {_ASK} to change it.",
    ),
    (403, "tls_name_denied"): Advice(
        "The name in the TLS handshake is not allowed",
        False,
        f"Ask for a tunnel to the host that the TLS handshake names. {_ASK} to allow the name if you need it.",
    ),
    (403, "account_disabled"): Advice("The account is disabled", False, f"{_ASK} to enable the account."),
    (403, "account_expired"): Advice("The account has expired", False, f"{_ASK} to extend the account."),
    (403, "account_network_not_allowed"): Advice(
        "The account may not be used from this address",
        False,
        f"Connect from a network of the account. {_ASK} to add yours.",
    ),
    (403, "outside_schedule"): Advice(
        "The account may not be used at this time",
        True,
        f"{_AGAIN}, when the schedule of the account allows it. {_ASK} for its hours.",
    ),
    (403, "account_destination_denied"): Advice(
        "The account denies the target", False, f"Request another target. {_ASK} if the account needs this one."
    ),
    (403, "account_destination_not_allowed"): Advice(
        "The account does not allow the target", False, f"Request a target that the account allows. {_ASK} to add it."
    ),
    (403, "credential_destination_not_allowed"): Advice(
        "The credential does not allow the target",
        False,
        "Use a credential that was made for this target, or have the holder of the account make one.",
    ),
    (403, "credential_expired"): Advice(
        "The credential has expired", False, "Have the holder of the account make a new credential."
    ),
    (403, "credential_network_not_allowed"): Advice(
        "The credential may not be used from this address",
        False,
        "Connect from a network of the credential, or have the holder of the account make another one.",
    ),
    (429, "client_connection_limit"): Advice(
        "The client has too many connections", True, "Close connections, or wait until some have ended."
    ),
    (429, "client_request_limit"): Advice(
        "The client sends too many requests", True, f"{_WAIT}, and wait as long as Retry-After says."
    ),
    (429, "account_connection_limit"): Advice(
        "The account has too many connections", True, "Close connections, or wait until some have ended."
    ),
    (429, "account_request_limit"): Advice(
        "The account sends too many requests", True, f"{_WAIT}, and wait as long as Retry-After says."
    ),
    (429, "account_client_limit"): Advice(
        "The account is in use from too many addresses",
        True,
        "Stop using the account at another address, and wait as long as Retry-After says. "
        f"{_ASK} for more addresses if you need them.",
    ),
    (429, "account_quota_reached"): Advice(
        "The quota of the account is used up",
        True,
        f"Wait for the next period, which Retry-After says where there is one. {_ASK} for a larger quota.",
    ),
    (429, "credential_connection_limit"): Advice(
        "The credential has too many connections", True, "Close connections, or wait until some have ended."
    ),
    (429, "credential_quota_reached"): Advice(
        "The quota of the credential is used up", False, "Have the holder of the account make a new credential."
    ),
    (429, "rule_connection_limit"): Advice(
        "Too many requests that match a rule are under way", True, "Wait until some of them have ended."
    ),
    (429, "rule_request_limit"): Advice(
        "Too many requests match a rule", True, f"{_WAIT}, and wait as long as Retry-After says."
    ),
    (500, "proxy_internal_error"): Advice(
        "The proxy has failed",
        True,
        f"{_AGAIN}. If it fails again, report the request_id to the operator of the proxy.",
    ),
    (502, "dns_error"): Advice(
        "The target's name does not resolve", False, "Check the spelling of the host, and whether the name exists."
    ),
    (502, "connection_refused"): Advice(
        "The target refuses the connection", True, "Check host and port, and whether the target's service is running."
    ),
    (502, "destination_ip_unroutable"): Advice(
        "There is no route to the target",
        False,
        f"{_ASK} whether the proxy has a route of the target's address family.",
    ),
    (502, "no_source_address"): Advice(
        "No source address fits the target", False, f"{_ASK} for a source address of the target's address family."
    ),
    (502, "destination_unavailable"): Advice(
        "The target can't be reached", True, f"{_AGAIN}, and check whether the target is up."
    ),
    (502, "no_upstream_matches"): Advice(
        "No upstream proxy has these labels", False, "Ask for fewer labels, or for others, in the user name."
    ),
    (502, "connection_terminated"): Advice(
        "The target closed the connection", True, f"{_AGAIN}, unless it must not be done twice."
    ),
    (502, "http_protocol_error"): Advice(
        "The target's response is not valid HTTP", False, "Tell the operator of the target about it."
    ),
    (502, "proxy_loop_detected"): Advice(
        "The request loops through the same proxy", False, "Take the proxy out of its own chain of proxies."
    ),
    (502, "proxy_configuration_error"): Advice(
        "The upstream proxy can't be used", False, f"{_ASK} to check the upstream proxy and its credentials."
    ),
    (503, "destination_unavailable"): Advice(
        "No upstream proxy can serve this now", True, f"{_AGAIN}. {_ASK} if the problem persists."
    ),
    (503, "connection_limit_reached"): Advice(
        "The proxy has too many connections", True, f"{_AGAIN}. {_ASK} for a higher limit if the problem persists."
    ),
    (503, "proxy_internal_error"): Advice(
        "The proxy can't serve this now", True, f"{_AGAIN}. {_ASK} if the problem persists."
    ),
    (503, "auth_backend_failed"): Advice(
        "The credentials can't be checked now", True, f"{_AGAIN}. {_ASK} if the problem persists."
    ),
    (503, "accounts_unavailable"): Advice(
        "The accounts can't be read now", True, f"{_AGAIN}. {_ASK} if the problem persists."
    ),
    (503, "quota_unavailable"): Advice(
        "What is left of the quota is not known now", True, f"{_AGAIN}. {_ASK} if the problem persists."
    ),
    (504, "dns_timeout"): Advice("The target's name did not resolve in time", True, f"{_AGAIN}."),
    (504, "connection_timeout"): Advice(
        "The target did not accept the connection in time", True, f"{_AGAIN}, and check whether the target is up."
    ),
    (504, "http_response_timeout"): Advice(
        "The target did not respond in time", True, f"{_AGAIN}, unless it must not be done twice."
    ),
}
"""By status and reason."""

_OTHER: Final = Advice("The proxy refuses the request", False, f"{_ASK}, with the request_id.")


def advice_for(failure: Failure) -> Advice:
    """What the client can do about it."""
    return ADVICE.get((failure.status, failure.reason), _OTHER)
