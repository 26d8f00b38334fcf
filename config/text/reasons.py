"""Why a request is refused, fails or ends early: the `reason` of its access record, the step of its way that it comes
to, and the same in words.

Commands print these words, the dashboard is built with them (`scripts/build-ui`), and `docs/refusals.md` has the steps.
"""

from __future__ import annotations

from typing import Final

REPORTED: Final = "reported:"
"""Prefix of a reason in records in report mode: the request was allowed."""

REASONS: Final[dict[str, dict[str, str]]] = {
    "listener": {
        "client_denied": "client address denied",
        "client_not_allowed": "client address not allowed",
        "http_request_error": "request not valid",
        "proxy_protocol_error": "invalid PROXY header",
        "proxy_protocol_timeout": "PROXY header too late",
        "tls_not_spoken": "client speaks no TLS",
        "tls_certificate_rejected": "client rejected our certificate",
        "tls_handshake_failed": "TLS handshake failed",
        "client_certificate_missing": "client certificate missing",
        "client_certificate_expired": "client certificate expired",
        "client_certificate_revoked": "client certificate revoked",
        "client_certificate_unknown_ca": "client certificate from an unknown authority",
        "client_certificate_invalid": "client certificate invalid",
    },
    "sign_in": {
        "http_request_denied": "credentials required",
        "http_request_denied.user": "wrong user name or password",
        "client_certificate_unmatched": "client certificate matches no account",
        "unknown_parameters": "unknown parameters in the user name",
        "auth_backend_failed": "credentials could not be checked",
        "accounts_unavailable": "accounts could not be read",
        "account_disabled": "account disabled",
        "account_expired": "account expired",
        "account_network_not_allowed": "account not allowed from this address",
        "outside_schedule": "outside the hours of the account",
        "credential_expired": "credential expired",
        "credential_network_not_allowed": "credential not allowed from this address",
    },
    "limits": {
        "connection_limit_reached": "too many connections to the proxy",
        "client_connection_limit": "too many connections from the client",
        "client_request_limit": "too many requests from the client",
        "account_connection_limit": "too many connections of the account",
        "account_request_limit": "too many requests of the account",
        "account_client_limit": "account in use at too many addresses",
        "account_quota_reached": "quota of the account used up",
        "credential_connection_limit": "too many connections of the credential",
        "credential_quota_reached": "quota of the credential used up",
        "quota_unavailable": "what is left of the quota is not known",
        "rule_connection_limit": "too many connections for a rule",
        "rule_request_limit": "too many requests for a rule",
    },
    "policy": {
        "policy_denied": "denied by a policy",
        "destination_denied": "target denied",
        "destination_not_allowed": "target not allowed",
        "account_destination_denied": "target denied by the account",
        "account_destination_not_allowed": "target not allowed by the account",
        "credential_destination_not_allowed": "target not allowed by the credential",
        "destination_ip_prohibited": "internal address, denied by the egress guard",
        "tls_name_denied": "name in the TLS handshake not allowed",
    },
    "exit": {
        "http_request_denied.upstream": "refused by the upstream proxy",
        "no_upstream_matches": "no upstream has these labels",
        "proxy_configuration_error": "upstream rejected our credentials",
        "no_source_address": "no outgoing address fits the target",
        "destination_ip_unroutable": "no route to the target",
        "proxy_loop_detected": "proxy loop",
        "proxy_internal_error": "internal error of the proxy",
    },
    "target": {
        "dns_error": "name does not resolve",
        "dns_timeout": "name did not resolve in time",
        "connection_refused": "target refused the connection",
        "connection_timeout": "target did not accept the connection in time",
        "destination_unavailable": "target or upstream unreachable",
        "connection_terminated": "target closed the connection",
        "connection_read_timeout": "target stopped sending",
        "http_protocol_error": "response is not valid HTTP",
        "http_response_timeout": "target did not respond in time",
        "http_response_incomplete": "response incomplete",
    },
    "ended": {
        "ended_by_operator": "ended by an operator",
        "drain_ended": "ended by a restart",
        "account_removed": "account deleted",
        "account_password_changed": "password changed",
        "account_name_not_enough": "user name alone no longer enough",
        "account_certificate_removed": "certificate removed from the account",
        "credential_revoked": "credential revoked",
    },
}
"""By the step that stops the request, in the order in which it comes to them; `ended` is what had passed all of them.

What follows a dot distinguishes cases of one reason: `.user` where a user was named, `.upstream` for a 403 of one.
"""

_WORDS: Final = {reason: words for of_step in REASONS.values() for reason, words in of_step.items()}


def words_of(reason: str) -> str:
    """`denied by a policy`; the reason itself where it has no words, such as one of an earlier version."""
    if reason.startswith(REPORTED):
        return f"only reported: {words_of(reason.removeprefix(REPORTED))}"
    return _WORDS.get(reason, reason)
