"""The fields of an access record, in the order in which a row has them, and its message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

ACCESS_FIELDS = (
    "timestamp",  # Unix seconds, when the request ended
    "level",  # debug, info, warning, error, critical
    "proxy_id",
    "client_ip",
    "user",  # the client's user name, "" for none
    "method",  # CONNECT for tunnels
    "target_url",  # the URL, or host:port of a tunnel
    "status_code",
    "response_time",  # milliseconds from the head of the request to the end of the response's head
    "duration",  # milliseconds from the head of the request to the end
    "bytes_in",  # what the client sent for this request
    "bytes_out",  # what the client received
    "request_id",
    "reason",  # the Proxy-Status error type or the rule, "" when all went well
    "parent",  # the name of the upstream proxy that it went through, "" for none
    "detail",  # the sentence that the client received of a refusal or failure, "" when all went well
    "rule",  # what of the configuration refused it: an entry of the access rules, the egress guard; "" for none
    "credential",  # the id of the credential that was used in place of the password, "" for none
    "source_address",  # the address that it left from, "" where the configuration gives none
    "parameters",  # those of the user name: `session=7 ttl=600 country=de ?unknown=x`, "" for none
    "pool",  # the name of the pool that the upstream proxy is in, "" for none
    "country",  # where the address is that it went to, by a database of places that rules name; "" where none says so
    "asn",  # the number of its autonomous system, likewise
    "listen_port",  # the port of the proxy that the client came to; 0 where an earlier release wrote the record
    "tls_name",  # what the client's TLS handshake in the tunnel names: A-labels, lower case; "" where none was read
    "alpn",  # the protocols that the handshake offers, with commas between: h2,http/1.1
    "tls_version",  # the highest version of TLS that the handshake offers, such as 1.3
)

PROXY_NAME = "proxy_name"
LINE_FIELDS = (*ACCESS_FIELDS, PROXY_NAME)
"""Those of a record in an output: the name is looked up or sent along, since a proxy may be renamed."""


def message_of(record: Mapping[str, Any]) -> str:
    """A record in one line: `GET http://example.com/ 200`, and the reason in parentheses if there is one."""
    reason = f" ({record['reason']})" if record.get("reason") else ""
    return f"{record.get('method', '')} {record.get('target_url', '')} {record.get('status_code', '')}{reason}".strip()
