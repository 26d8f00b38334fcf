"""Regular expressions of text fields for the description of the API, and the JSON schemas made of them.

Lengths are bounded by what must not follow (`(?!.{254})`), since generators take `(?=` for something to generate.

The readers (`config.net.entries`, `config.model.fields`, `api.objects.proxies.proxy_test` …) stay what decides; a test
proves for each of them that it accepts what its pattern matches and refuses what it doesn't. The dialect is what ECMA
262 and Python have in common (JSON Schema, section 6.4). What only the machine or the store can know is not here:
whether a name is in use.
"""

from __future__ import annotations

from typing import Any

from pydantic import WithJsonSchema

# --- parts, without anchors ---------------------------------------------------------------------------------------

_CONTROL = r"\u0000-\u001f\u007f-\u009f\u2028\u2029"
TURNS = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Characters that turn the direction of writing (Unicode: Bidi_Control)."""
_BLANKS = rf"[^\S{_CONTROL}]*"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = rf"(?:{_OCTET}\.){{3}}{_OCTET}"
_H16 = r"[0-9A-Fa-f]{1,4}"
_LS32 = rf"(?:{_H16}:{_H16}|{_IPV4})"


def _ipv6() -> str:
    """RFC 3986, appendix A."""
    forms = [rf"(?:{_H16}:){{6}}{_LS32}", rf"::(?:{_H16}:){{5}}{_LS32}"]
    for before in range(5):
        left = rf"(?:(?:{_H16}:){{0,{before}}}{_H16})?"
        after = 4 - before
        forms.append(rf"{left}::(?:{_H16}:){{{after}}}{_LS32}" if after else rf"{left}::{_LS32}")
    forms += [rf"(?:(?:{_H16}:){{0,5}}{_H16})?::{_H16}", rf"(?:(?:{_H16}:){{0,6}}{_H16})?::"]
    return f"(?:{'|'.join(forms)})"


_IPV6 = _ipv6()
_NET4 = rf"{_IPV4}(?:/(?:3[0-2]|[12]?[0-9]))?"
_NET6 = rf"{_IPV6}(?:/(?:12[0-8]|1[01][0-9]|[1-9]?[0-9]))?"
_PORT = r"(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9][0-9]|6[0-4][0-9][0-9][0-9]|[1-5][0-9][0-9][0-9][0-9]|[1-9][0-9]{0,3})"
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_NUMBER = r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)"
"""As the last label of a name it makes an odd spelling of an address."""

# --- whole texts; lengths are in the patterns where they are no mere count of characters ---

PLAIN = rf"^{_BLANKS}[^\s{_CONTROL}][^{_CONTROL}]*$"
"""No control characters, and not blank."""
NAME = rf"^{_BLANKS}[^\s{_CONTROL}{TURNS}][^{_CONTROL}{TURNS}]*$"
"""The same without characters that turn the direction of writing."""
USER_NAME = rf"^{_BLANKS}[^:\s{_CONTROL}][^:{_CONTROL}]*$"
_UNSEEN = (
    r"\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u2800"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb"
)
PERSON_NAME = rf"^[^:\s{_CONTROL}{_UNSEEN}](?:[^:{_CONTROL}{_UNSEEN}]*[^:\s{_CONTROL}{_UNSEEN}])?$"
"""`config.model.fields` judges scripts besides, which no pattern knows."""
CLIENT_NAME = rf"^{_BLANKS}[^:\s{_CONTROL}{TURNS}][^:{_CONTROL}{TURNS}]*$"
ACCOUNT_NAME = rf"^(?!\.{{1,2}}$){_BLANKS}[^:/\s{_CONTROL}{TURNS}][^:/{_CONTROL}{TURNS}]*$"
FILE_PATH = rf"^/[^{_CONTROL}]{{0,4095}}$"
ADDRESS = rf"^(?:{_IPV4}|{_IPV6})$"
NETWORK = rf"^(?:{_NET4}|{_NET6})$"
HOST = rf"^(?:{_IPV4}|{_IPV6}|(?!.{{254}})(?!(?:.*\.)?{_NUMBER}$){_LABEL}(?:\.{_LABEL})*)$"
_ADDRESS_OF_NODE = r"\{address(?::[a-z][a-z0-9_-]{0,31})?\}"
ADDRESS_OF_NODE = rf"^{_ADDRESS_OF_NODE}$"
"""What stands for an address of the node that a proxy runs on."""
SOURCE = rf"^(?:{_NET4}|{_NET6}|{_ADDRESS_OF_NODE})$"
"""An address or a network that a proxy goes out from."""
PROXY_HOST = (
    rf"{HOST[:-2]}|{_ADDRESS_OF_NODE}|[A-Za-z0-9_-]{{0,16}}\{{node\}}[A-Za-z0-9_-]{{0,16}}(?:\.{_LABEL}){{0,16}})$"
)
"""A host, or what becomes one on each node. The reader is `config.model.nodes`."""
UPSTREAM_HOST = rf"^(?:{_IPV4}|{_IPV6}|(?!.{{254}})(?!(?:.*\.)?{_NUMBER}\.?$){_LABEL}(?:\.{_LABEL})*\.?)$"
TLS_NAME = rf"^(?:{UPSTREAM_HOST[1:-1]}|(?:{_IPV4}|{_IPV6})\.)?$"
"""A host, perhaps with a final dot, or nothing for a handshake without a name."""
NODE_NAME = "^[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?$"
ADDRESS_NAME = "^[a-z][a-z0-9_-]{0,31}$"
"""What an address of a node is called."""
HOSTS_NAME = rf"^(?!.{{254}})(?!(?:.*\.)?{_NUMBER}$){_LABEL}(?:\.{_LABEL})*$"
_SERVER_NAME = rf"(?![^:/#]{{254}})(?!(?:[^:/#]*\.)?{_NUMBER}(?:[:/#]|$)){_LABEL}(?:\.{_LABEL})*"
_SERVER_HOST = rf"(?:{_IPV4}|\[{_IPV6}\]|{_SERVER_NAME})(?::{_PORT})?"
NAME_SERVER = (
    rf"^(?:{_IPV6}|(?:{_IPV4}|\[{_IPV6}\])(?::{_PORT})?|tls://{_SERVER_HOST}(?:#{_SERVER_NAME})?"
    rf"|https://{_SERVER_HOST}(?:/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*)?(?:#{_SERVER_NAME})?)$"
)
"""The grammar is in `config.net.dns_servers`."""
NODE_ADDRESS = rf"^(?:{_IPV6}|(?:{_IPV4}|\[{_IPV6}\]|{_SERVER_NAME})(?::{_PORT})?)$"
"""The reader is in `config.model.nodes`."""
_PORTS = rf":{_PORT}(?:-{_PORT})?"
_LONG = r"[^:]{253}(?:[^:.]|\.[^:])"
"""More than 253 characters, a dot at the end left out."""
_ANY_NAME = rf"(?!(?:[^:]*\.)?{_NUMBER}\.?(?::|$))(?!\*\.{_LONG})(?!(?!\*\.){_LONG})(?:\*\.)?{_LABEL}(?:\.{_LABEL})*\.?"
_LIST = rf"list:(?![1-9][0-9]{{0,4}}(?:-[1-9][0-9]{{0,4}})?$)[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}(?:{_PORTS})?"
_ASN = (
    r"(?:42949672(?:9[0-5]|[0-8][0-9])|429496[0-6][0-9]{3}|42949[0-5][0-9]{4}|4294[0-8][0-9]{5}"
    r"|429[0-3][0-9]{6}|42[0-8][0-9]{7}|4[01][0-9]{8}|[1-3][0-9]{9}|[1-9][0-9]{0,8})"
)
_GEO = rf"geo:[A-Za-z0-9][A-Za-z0-9._-]{{0,63}}:(?:country=[A-Z]{{2}}|asn={_ASN})(?:{_PORTS})?"
DESTINATION = rf"^(?:{_PORTS}|{_LIST}|{_GEO}|(?:\*|{_NET4}|{_ANY_NAME})(?:{_PORTS})?|{_NET6}|\[{_NET6}\](?:{_PORTS})?)$"
"""The grammar is in `config.net.entries`."""
_OTHER = r"[^\u0000-\u007f]"
_IDN = rf"[0-9A-Za-z.-]*{_OTHER}(?:[0-9A-Za-z.-]|{_OTHER})*"
"""A name in other letters than ASCII (`config.net.names.in_a_labels`); which of them it may have, no pattern says."""
IDN = rf"^{_IDN}$"
WRITTEN_DESTINATION = rf"{DESTINATION}|^(?:\*\.)?{_IDN}(?:{_PORTS})?$"
"""A destination as a request may write it."""
_TARGET_LABEL = r"[A-Za-z0-9_-]{1,63}"
_TARGET_NAME = rf"(?!(?:[^:/?#]*\.)?{_NUMBER}\.?(?:[:/?#]|$)){_TARGET_LABEL}(?:\.{_TARGET_LABEL})*\.?"
_AUTHORITY = rf"(?:{_IPV4}|(?![^:/?#]{{256}}){_TARGET_NAME}|\[{_IPV6}\])(?::(?![0-9]{{6}})0*{_PORT})?"
_WEB = r"[hH][tT][tT][pP][sS]?"
TARGET = rf"^(?![\s\S]{{2049}})(?:{_WEB}://{_AUTHORITY}(?:[/?#][\s\S]*)?|{_AUTHORITY}|{_IPV6})$"
"""An http or https URL, `host:port` or a host alone."""
WEB_URL = rf"^(?!.{{2049}}){_WEB}://{_AUTHORITY}(?:[/?#][!-~]*)?$"
"""An http or https URL without user information, in ASCII (RFC 3986)."""
WEBHOOK_URL = rf"^{_WEB}://{_AUTHORITY}(?:[/?][!-\"$-\[\]-~]*)?$"
"""Such a URL without a fragment and backslashes."""
CERTIFICATE = (
    rf"^(?:CN={_BLANKS}[^\s{_CONTROL}][^{_CONTROL}]*"
    rf"|DNS:(?:\*\.)?(?!.{{254}})(?!(?:.*\.)?{_NUMBER}$){_LABEL}(?:\.{_LABEL})*"
    r"|URI:[A-Za-z][A-Za-z0-9+.-]*:[!-~]+|SHA256:[0-9A-Fa-f]{2}(?::?[0-9A-Fa-f]{2}){31})$"
)
"""The reader is in `config.files.certificates`."""
PORTS = rf"^{_PORT}-{_PORT}$"
"""Consecutive ports; that the lower one is first, no pattern can say."""
TIME_OF_DAY = "^(?:[01][0-9]|2[0-3]):[0-5][0-9]$"
END_OF_WINDOW = "^(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"
TIME_ZONE = "^[A-Za-z][A-Za-z0-9_+-]*(?:/[A-Za-z0-9_+-]+)*$"
"""The form of a name in the IANA database; which names there are, the machine knows."""
ACCOUNT_HASH = r"^(?:sha256:\$2b\$10\$|\$2[aby]\$(?:0[4-9]|1[0-5])\$)[./0-9A-Za-z]{21}[.Oeu][./0-9A-Za-z]{31}$"
"""Bcrypt at a cost of at most 15, or one of our own (`config.passwords.PREHASHED`), which has our cost. A salt of 128
bits leaves two bits to its last character."""
OBJECT_NAME = r"^(?!(?:pool|list|policy)_[0-9a-f]{16}$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""The name of a pool, a list or a policy: a part of paths and of `list:NAME`, and never one of their ids."""
LIST_NAME = r"^(?!(?:pool|list|policy)_[0-9a-f]{16}$)(?![0-9]+(?:-[0-9]+)?$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""The same of a list, which is no number either: `list:443` is a port of a host called `list`."""
DOMAIN = rf"^(?!.{{254}}.)(?!(?:.*\.)?{_NUMBER}\.?$){_LABEL}(?:\.{_LABEL})*\.?$"
"""An entry of a list of domains. The reader is `config.net.names.read_domain`."""
LABEL_NAME = "^(?!(?:session|ttl|rotate)$)[a-z][a-z0-9_]{0,31}$"
"""The name of a label of an upstream, and of a parameter in a user name that selects by it."""
ACCOUNT_MATCH = (
    rf"^(?:tag:(?![\s\S]{{65}}){_BLANKS}[^\s{_CONTROL}][^{_CONTROL}]*"
    rf"|(?![\s\S]{{129}}){_BLANKS}[^:\s{_CONTROL}][^:{_CONTROL}]*)$"
)
"""A user name, or `tag:` and a tag of accounts."""
PROXY_MATCH = (
    rf"^(?:tag:(?![\s\S]{{65}}){_BLANKS}[^\s{_CONTROL}{TURNS}][^{_CONTROL}{TURNS}]*"
    rf"|(?!tag:)(?![\s\S]{{101}}){_BLANKS}[^\s{_CONTROL}{TURNS}][^{_CONTROL}{TURNS}]*)$"
)
"""The name or the id of a proxy, or `tag:` and a tag of proxies."""
FIELD_NAME = r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$"
"""RFC 9110, section 5.6.2: the name of a header field."""
METHOD = r"^(?!CONNECT$)[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}$"
"""A method that a rule may name: never that of tunnels."""
FIELD_VALUE = r"^[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?$"
"""The value of a header field: visible ASCII, with blanks inside."""
PATH_PATTERN = r"^(?![^?]*/(?:\.|%2[eE]){1,2}(?:[/?]|$))/[!\"$->@-~]{0,2047}(?:\?[!\"$-~]{0,2047})?$"
"""A path in which `*` stands for any text, without dot segments; perhaps with a query."""
USE = r"^(?:direct|deny|pool:(?!(?:pool|list|policy)_[0-9a-f]{16}$)[A-Za-z0-9][A-Za-z0-9._-]{0,63})$"
"""What a rule does with a request."""
LATER_MOMENT = "^(?:19[7-9]|[2-8][0-9][0-9])[0-9]-"
"""The year of a date: 1970 to 8999."""


# --- schemas ------------------------------------------------------------------------------------------------------


def text(pattern: str | None = None, lowest: int = 0, highest: int | None = None, **more: Any) -> WithJsonSchema:
    """A text of `lowest` to `highest` characters that matches `pattern`."""
    schema: dict[str, Any] = {"type": "string"}
    if lowest:
        schema["minLength"] = lowest
    if highest is not None:
        schema["maxLength"] = highest
    if pattern is not None:
        schema["pattern"] = pattern
    return WithJsonSchema({**schema, **more})


def text_or_none(pattern: str, highest: int) -> WithJsonSchema:
    """A text that matches `pattern`, or an empty one."""
    return WithJsonSchema({"anyOf": [{"const": ""}, {"type": "string", "pattern": pattern}], "maxLength": highest})


def texts(pattern: str, most: int, least: int = 0) -> WithJsonSchema:
    """A list of so many texts."""
    schema = {"type": "array", "items": {"type": "string", "pattern": pattern}, "maxItems": most}
    return WithJsonSchema({**schema, "minItems": least} if least else schema)


def mapping(names: dict[str, Any], values: WithJsonSchema, most: int, least: int = 0) -> WithJsonSchema:
    """An object of so many members; `names` is the schema of their names."""
    members = {"propertyNames": names, "additionalProperties": values.json_schema}
    schema = {"type": "object", **members, "maxProperties": most}
    return WithJsonSchema({**schema, "minProperties": least} if least else schema)


def any_of(*forms: WithJsonSchema) -> WithJsonSchema:
    """One of several forms."""
    return WithJsonSchema({"anyOf": [each.json_schema for each in forms]})


NULL = WithJsonSchema({"type": "null"})
EMPTY = WithJsonSchema({"const": ""})
PORT = WithJsonSchema({"type": "integer", "minimum": 1, "maximum": 65535})


def number(highest: float, **bound: float) -> WithJsonSchema:
    """A number up to `highest`; `bound` is `minimum` or `exclusiveMinimum`."""
    return WithJsonSchema({"type": "number", **bound, "maximum": highest})


def one_of(*allowed: str) -> WithJsonSchema:
    """One text of a few."""
    return WithJsonSchema({"type": "string", "enum": list(allowed)})


MOMENT: dict[str, Any] = {"type": "string", "format": "date-time", "pattern": LATER_MOMENT}
"""A date and time, ISO 8601."""
