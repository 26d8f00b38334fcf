"""Upstream proxies in requests, and their stored model.

An upstream is identified by its protocol, host, port and user name: an update replaces the list, and an entry that has
the same four and comes without a password keeps the stored password. Passwords are stored sealed; no response has them.

A request gives them as a list of objects and lines, or as one text (`config.text.upstream_lines`).
"""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    ValidationInfo,
    WrapValidator,
)
from pydantic_core import PydanticCustomError

from config.files.certificates import for_callers, unusable_file
from config.files.secret_box import SealedFor, SecretBox
from config.model import json_patterns
from config.model.choices import UpstreamProtocol
from config.model.declaration import Given, Group, Viewed
from config.model.fields import (
    Body,
    FilePath,
    InvalidProxy,
    Name,
    Port,
    Text,
    field_path,
    plain_text,
    refuse_long,
    user_name,
)
from config.model.webhooks import LONGEST_URL, absolute_url
from config.net.names import Ports, is_host_name, is_loopback
from config.text.formatting import worded
from config.text.upstream_lines import DEFAULT_PROTOCOL, BadUpstreamLine, read_line, read_text

if TYPE_CHECKING:
    from config.model.proxies import ProxyRecord


class _Line(NamedTuple):
    """An entry that was a line of a text."""

    number: int
    entry: dict[str, Any]


def listed(given: Any, info: ValidationInfo) -> Any:
    """A text of lines as a list of them."""
    if not isinstance(given, str):
        return given
    try:
        return [_Line(*line) for line in read_text(given, _bare_protocol(info))]
    except BadUpstreamLine as error:
        raise PydanticCustomError("bad_line", "{error}", {"error": str(error)}) from None


def _bare_protocol(info: ValidationInfo) -> str:
    """What lines without a scheme are of: the field `upstream_protocol` before this one."""
    return (info.data or {}).get("upstream_protocol") or DEFAULT_PROTOCOL


def read_upstream(given: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
    """An upstream as an object, or as one line."""
    if isinstance(given, str):
        try:
            given = read_line(given, _bare_protocol(info))
        except BadUpstreamLine as error:
            raise PydanticCustomError("bad_line", "{error}", {"error": str(error)}) from None
    if not isinstance(given, _Line):
        return read(given)
    try:
        upstream = read(given.entry)
    except ValidationError as error:
        raise _of_line(given.number, error) from None
    upstream.was_line(given.number)
    return upstream


def _of_line(number: int, error: ValidationError) -> PydanticCustomError:
    first = error.errors(include_url=False, include_input=False)[0]
    is_of_pools = first["type"] == "extra_forbidden" and first["loc"] == ("labels",)
    why = "is only for upstreams of a pool" if is_of_pools else worded(first)
    text = f"line {number}: {field_path(first['loc'])}: {why}"
    return PydanticCustomError("bad_line", "{error}", {"error": text})


class OrText:
    """For the description: what may be a text instead."""

    def __init__(self, longest: int) -> None:
        self._longest = longest

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        return {"anyOf": [handler(schema), {"type": "string", "minLength": 1, "maxLength": self._longest}]}


UPSTREAMS_MAX = 10_000
PURPOSE = SealedFor.UPSTREAM


def _upstream_host(text: str) -> str:
    try:
        if "%" not in text:
            return str(ip_address(text))
    except ValueError:
        if is_host_name(text.removesuffix(".")):
            return text.lower()
    raise ValueError("must be a host name or an IP address")


Host = Annotated[StrictStr, Text(1, 253, _upstream_host, pattern=json_patterns.UPSTREAM_HOST, lengths=False)]
Username = Annotated[StrictStr, Text(1, 255, user_name, pattern=json_patterns.USER_NAME)]
Password = Annotated[StrictStr, Text(1, 255, plain_text, pattern=json_patterns.PLAIN)]


class UpstreamAuth(Body):
    """`auth` of an upstream. With `socks4` the user name is the USERID, and there is no password."""

    username: Username
    password: Password | None = Field(None, repr=False)


class UpstreamTls(Body):
    """`tls` of an `https` upstream: `ca_file` (PEM) in place of the system's authorities, another name to verify."""

    verify: StrictBool = True
    ca_file: FilePath | None = None
    server_name: Host | None = None


class UpstreamInput(Body):
    """One upstream of a request."""

    protocol: UpstreamProtocol
    host: Host
    port: Port
    auth: UpstreamAuth | None = None
    weight: Annotated[StrictInt, Field(ge=1, le=100)] = 1
    name: Name | None = None
    tls: UpstreamTls | None = None
    proxy_protocol: Literal["v1", "v2"] | None = None
    _line: int | None = PrivateAttr(None)

    @property
    def line(self) -> int | None:
        """The line of a text that it was."""
        return self._line

    def was_line(self, number: int) -> None:
        """Remember it, for what is wrong with the whole list."""
        self._line = number


ONE_UPSTREAM = (WrapValidator(read_upstream), OrText(2048))
"""Annotations of an entry."""
ALL_UPSTREAMS = (Field(max_length=UPSTREAMS_MAX), BeforeValidator(listed), OrText(4 * 1024 * 1024))
"""Annotations of a list of such entries."""
Upstreams = Annotated[list[Annotated[UpstreamInput, *ONE_UPSTREAM]], *ALL_UPSTREAMS]


class ProxyUpstream(Viewed):
    """Stored: one upstream. `password` is sealed."""

    name: str
    protocol: UpstreamProtocol
    host: str
    port: int
    username: str | None = None
    password: str | None = Field(None, repr=False)
    weight: int = 1
    verify: bool = True
    ca_file: str | None = None
    server_name: str | None = None
    proxy_protocol: Literal["v1", "v2"] | None = None

    @property
    def identity(self) -> tuple[str, str, int, str | None]:
        """The fields that identify it."""
        return self.protocol, self.host, self.port, self.username

    def view(self) -> dict[str, Any]:
        """The entry as it may be sent again, without the password."""
        view: dict[str, Any] = self.model_dump(include={"name", "protocol", "host", "port", "weight"})
        if self.username is not None:
            view["auth"] = {"username": self.username}
        if self.protocol == "https":
            view["tls"] = self.model_dump(include={"verify", "ca_file", "server_name"}, exclude_none=True)
        if self.proxy_protocol is not None:
            view["proxy_protocol"] = self.proxy_protocol
        return view


U = TypeVar("U", bound=ProxyUpstream)

_Interval = Annotated[StrictInt | StrictFloat, Field(ge=1, le=3600), json_patterns.number(3600, minimum=1)]


def _check_url(text: str) -> str:
    """Empty for none."""
    if text:
        host = urlsplit(absolute_url(text)).hostname or ""
        if not is_host_name(host):
            try:
                ip_address(host)
            except ValueError:
                raise ValueError("must name its host by a name or an address") from None
    return text


CheckedUrl = Annotated[
    StrictStr,
    Field(max_length=LONGEST_URL),
    AfterValidator(_check_url),
    json_patterns.any_of(json_patterns.EMPTY, json_patterns.text(json_patterns.WEBHOOK_URL, highest=LONGEST_URL)),
]
_Status = Annotated[StrictInt, Field(ge=200, le=599)]
_Timeout = Annotated[StrictInt | StrictFloat, Field(gt=0, le=60), json_patterns.number(60, exclusiveMinimum=0)]


class UpstreamCheck(Group):
    """How upstreams are checked, seconds. With a `url` each is sent a request for it; `expect` is the status due."""

    enabled: Annotated[bool, Given(StrictBool)] = True
    interval: Annotated[float, Given(_Interval)] = 30
    timeout: Annotated[float, Given(_Timeout)] = 5
    url: Annotated[str, Given(CheckedUrl)] = ""
    expect: Annotated[int, Given(_Status)] = 204


def replace_upstreams(before: Iterable[U], given: Sequence[UpstreamInput], seal: SecretBox, stored: type[U]) -> list[U]:
    """The list as it is to be stored, of the class `stored`. Raises `InvalidProxy`, `SecretBoxError`."""
    passwords = {upstream.identity: upstream.password for upstream in before}
    names = _names(given)
    after: list[U] = []
    seen: dict[tuple[str, str, int, str | None], int] = {}
    for index, entry in enumerate(given):
        _check_whole(entry, f"upstreams[{index}]")
        upstream = _stored(entry, names[index], stored)
        if upstream.identity in seen:
            raise _twice(given, seen[upstream.identity], index)
        seen[upstream.identity] = index
        password, known = entry.auth.password if entry.auth else None, passwords.get(upstream.identity)
        sealed = known if password is None else seal.reseal(known, password, PURPOSE)
        after.append(upstream.model_copy(update={"password": sealed}))
    return after


def _check_whole(entry: UpstreamInput, field: str) -> None:
    try:
        check_upstream(entry, field)
    except InvalidProxy as error:
        text = error.error if entry.line is None else f"line {entry.line}: {error.error}"
        raise InvalidProxy(error.field, text) from error


def _twice(given: Sequence[UpstreamInput], first: int, index: int) -> InvalidProxy:
    line, other = given[index].line, given[first].line
    if line is not None:
        return InvalidProxy(f"upstreams[{index}]", f"line {line}: is the same upstream as line {other}")
    return InvalidProxy(f"upstreams[{index}]", f"is the same upstream as upstreams[{first}]")


def refuse_itself(upstreams: Iterable[ProxyUpstream], host: str, ports: Ports) -> None:
    """A proxy that is its own upstream would go round in circles. Raises `InvalidProxy`."""
    for index, upstream in enumerate(upstreams):
        if is_listener(upstream, host, ports):
            raise InvalidProxy(f"upstreams[{index}].port", "is this proxy itself")


class Listeners:
    """Proxies by what they listen at: by port, and those with ranges of ports."""

    def __init__(self, proxies: Iterable[ProxyRecord]) -> None:
        self._by_port: dict[int, list[ProxyRecord]] = {}
        self._with_ranges: list[ProxyRecord] = []
        for each in proxies:
            ports = each.ports
            (self._by_port.setdefault(ports.first, []) if len(ports) == 1 else self._with_ranges).append(each)

    def reached_by(self, upstream: ProxyUpstream) -> list[ProxyRecord]:
        """Those that this upstream is."""
        found = (*self._by_port.get(upstream.port, ()), *self._with_ranges)
        return [each for each in found if is_listener(upstream, each.host, each.ports)]

    def refuse_circle(self, start: ProxyRecord) -> None:
        """A chain of own listeners that comes back to where it began would go on until nothing is left.

        Raises `InvalidProxy`. Listeners that are written by another name or address than their own are not recognised.
        """
        for index, upstream in enumerate(start.upstreams):
            reached: set[str] = {start.id}
            waiting = self.reached_by(upstream)
            while waiting:
                proxy = waiting.pop()
                if proxy.id in reached:
                    continue
                reached.add(proxy.id)
                if any(is_listener(each, start.host, start.ports) for each in proxy.upstreams):
                    raise InvalidProxy(
                        f"upstreams[{index}]", f"the chain comes back to this proxy, by way of {proxy.name!r}"
                    )
                waiting += [each for above in proxy.upstreams for each in self.reached_by(above)]


def is_listener(upstream: ProxyUpstream, host: str, ports: Ports) -> bool:
    """Whether this upstream is a listener at `host` with these `ports`."""
    if upstream.port not in ports:
        return False
    anywhere = host in ("0.0.0.0", "::")  # noqa: S104 - compared, not bound
    return upstream.host == host or ((anywhere or is_loopback(host)) and is_loopback(upstream.host))


def _stored(entry: UpstreamInput, name: str, kind: type[U]) -> U:
    given = entry.model_dump(include={"protocol", "host", "port", "weight", "proxy_protocol", "labels"})
    username = entry.auth.username if entry.auth else None
    tls = entry.tls or UpstreamTls()
    return kind.model_validate({**given, **tls.model_dump(), "name": name, "username": username})


def check_upstream(entry: UpstreamInput, field: str) -> None:
    """Checks that concern several fields. Raises `InvalidProxy`."""
    auth = entry.auth
    if auth is not None and entry.protocol == "socks4" and auth.password is not None:
        raise InvalidProxy(f"{field}.auth.password", "socks4 has no passwords: the user name is sent as the USERID")
    if auth is not None and entry.protocol == "socks5":
        refuse_long(f"{field}.auth.username", auth.username)
        refuse_long(f"{field}.auth.password", auth.password)
    if entry.tls is None:
        return
    if entry.protocol != "https":
        raise InvalidProxy(f"{field}.tls", "is for https upstreams")
    if entry.tls.ca_file is not None:
        _check_authorities(entry.tls.ca_file, f"{field}.tls.ca_file")


def _check_authorities(file: str, field: str) -> None:
    error = unusable_file(Path(file)) or _no_authorities(file)
    if error is not None:
        raise InvalidProxy(field, for_callers(field, error))


def _no_authorities(file: str) -> str | None:
    """Why the file has no certificates, None when it has some."""
    try:
        ssl.create_default_context(cafile=file)
    except ssl.SSLError:
        return f"{file}: no PEM certificates"
    except OSError as error:
        return f"{file}: {error.strerror or error}"
    return None


def _names(given: Sequence[UpstreamInput]) -> list[str]:
    """The names of all: as given, else protocol, host and port, with a number where that is not enough."""
    plain = [entry.name or _default_name(entry) for entry in given]
    chosen = Counter(entry.name for entry in given if entry.name is not None)
    used = set(chosen)
    numbers: dict[str, int] = {}
    names = []
    for index, entry in enumerate(given):
        if entry.name is not None and chosen[entry.name] > 1:
            raise InvalidProxy(f"upstreams[{index}].name", f"the name {entry.name!r} is there more than once")
        name = plain[index]
        while entry.name is None and name in used:
            numbers[plain[index]] = number = numbers.get(plain[index], 1) + 1
            name = f"{plain[index]} ({number})"
        used.add(name)
        names.append(name)
    return names


def _default_name(entry: UpstreamInput) -> str:
    host = f"[{entry.host}]" if ":" in entry.host else entry.host
    return f"{entry.protocol}://{host}:{entry.port}"
