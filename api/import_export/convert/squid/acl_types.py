"""The types of access lists: a row each, with the function that makes the condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

from api.import_export.convert.decisions import ALWAYS, NEVER, Condition, of_methods, of_users
from api.import_export.convert.draft import Draft
from api.import_export.convert.host_sets import Addresses, Names
from api.import_export.convert.intervals import Intervals, Range
from api.import_export.convert.regions import EVERYTHING, PLAIN, PLAIN_HTTP, TUNNEL, Region
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.squid import regexes, values
from api.import_export.convert.squid.acls import Acl, Listener, Value, union
from config.model import json_patterns
from config.model.choices import ANY_METHOD
from config.net.host_names import is_host_name

_PATH = re.compile(json_patterns.PATH_PATTERN, re.ASCII)
_METHOD = re.compile(json_patterns.METHOD, re.ASCII)

Maker = Callable[[Acl, Listener, Report, Draft], Condition]

CASES_MAX = 64
"""Spellings in capitals and small letters of one path."""


def _src(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    found, unclear = _addresses(acl, report)
    everyone = found == values.WORDS["all"]
    return _plain((EVERYTHING if everyone else Region(clients=found),) if found else (), unclear)


def _dst(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    found, unclear = _addresses(acl, report)
    everyone = found == values.WORDS["all"]
    return _plain((EVERYTHING if everyone else Region(hosts=found),) if found else (), unclear)


_OF_OLD = {"0/0", "0.0.0.0/0", "0.0.0.0/0.0.0.0", "0.0.0.0-255.255.255.255", "0.0.0.0-0.0.0.0/0"}
"""Which squid takes for `all`, IPv6 included."""


def _addresses(acl: Acl, report: Report) -> tuple[Addresses, str]:
    found, unclear = list[Addresses](), ""
    for value in acl.values:
        try:
            found.append(values.WORDS["all"] if value.text in _OF_OLD else values.addresses(value.text))
        except ValueError as error:
            unclear = _bad(value, report, str(error), "write its addresses in place of a name, and convert again")
    return Addresses.union(found), unclear


def _bad(value: Value, report: Report, why: str, instead: str) -> str:
    report.add(Effect.LOST, value.statement, f"{value.text}: {why}", instead)
    return f"{value.text}: {why}"


def _plain(regions: tuple[Region, ...], unclear: str, most: tuple[Region, ...] = (EVERYTHING,)) -> Condition:
    return Condition(regions, unclear, most) if unclear else Condition(regions)


def _dstdomain(acl: Acl, _listener: Listener, report: Report, draft: Draft) -> Condition:
    known, most, unclear = list[Names](), list[Region](), ""
    for value in acl.values:
        if values.is_address(value.text):
            unclear = "an address among domains matches only clients that ask for that address"
            most.append(Region(hosts=values.addresses(value.text)))
            instead = "use the type dst for it, which also matches names that resolve to it"
            report.add(Effect.DIFFERS, value.statement, f"{value.text}: {unclear}", instead)
            continue
        try:
            known.append(values.names(value.text))
        except ValueError as error:
            if value.text.startswith("*"):
                report.add(Effect.DIFFERS, value.statement, f"{value.text}: squid knows no *, so it never matches")
                continue
            unclear = _bad(value, report, str(error), "write it in ASCII (xn--…), and convert again")
            most.append(EVERYTHING)
    if "-n" not in acl.options and acl.statement.place.file:
        why = "squid looks up the name of a client's numeric target; here a rule about names never matches one"
        instead = "name the addresses of these hosts in a rule, too, if clients may ask for addresses"
        report.add(Effect.DIFFERS, acl.statement, why, instead, about=f"acl {acl.name}")
    found = Names.union(known)
    draft.hint(found, acl.name)
    return _plain((Region(hosts=found),) if found else (), unclear, tuple(dict.fromkeys(most)))


def _dstdom_regex(acl: Acl, _listener: Listener, report: Report, draft: Draft) -> Condition:
    known, unclear = list[Names](), ""
    for value in acl.values:
        try:
            known.append(regexes.names_of(value.text))
        except regexes.NotFinite as error:
            instead = (
                "write the names as dstdomain, or as ^www\\.example\\.com$ or \\.example\\.com$, and convert again"
            )
            unclear = _bad(value, report, str(error), instead)
    found = Names.union(known)
    draft.hint(found, acl.name)
    return _plain((Region(hosts=found),) if found else (), unclear)


def _port(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    ranges, unclear = list[Range](), ""
    for value in acl.values:
        try:
            ranges += values.ports(value.text).ranges
        except ValueError as error:
            unclear = _bad(value, report, str(error), "write a number or a range")
    found = Intervals.of(ranges)
    return _plain((Region(ports=found),) if found else (), unclear)


def _method(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    """squid knows the usual methods in small letters, too."""
    wanted = {value.text.upper() if value.text.isalpha() else value.text for value in acl.values}
    known = {each for each in wanted if each in TUNNEL or (_METHOD.fullmatch(each) and each != ANY_METHOD)}
    if unknown := sorted(wanted - known):
        report.add(Effect.DIFFERS, acl.statement, f"{', '.join(unknown)}: no method, and refused in any case")
    return of_methods(frozenset(known))


_PROTOCOLS = {"HTTP": PLAIN, "HTTPS": frozenset[str](), "NONE": TUNNEL}


def _proto(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    found: frozenset[str] = frozenset().union(*(_PROTOCOLS.get(each.text.upper(), frozenset()) for each in acl.values))
    for value in acl.values:
        if value.text.upper() not in _PROTOCOLS:
            report.add(Effect.UNNEEDED, value.statement, f"{value.text}: clients can't ask for this protocol here")
    return of_methods(found)


def _time(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    found, unclear = Intervals(()), ""
    for line in acl.lines:
        try:
            found = Intervals.of((*found.ranges, *values.minutes([each.text for each in line]).ranges))
        except ValueError as error:
            unclear = _bad(line[0], report, str(error), "write days and a time like MTWHF 9:00-17:00")
    return _plain((Region(minutes=found),) if found else (), unclear)


def _proxy_auth(acl: Acl, _listener: Listener, _report: Report, _draft: Draft) -> Condition:
    names = {value.text for value in acl.values}
    if "REQUIRED" in names or not names:
        return ALWAYS
    if any(value.any_case for value in acl.values):
        why = "user names are compared with regard to case"
        return replace(of_users(names), unclear=f"-i: {why}")
    return of_users(names)


def _urlpath_regex(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    """squid compares path and query as one text, rules one after the other: a path that ends so has any query here."""
    exact, wide, nearest, unclear, most = set[str](), set[str](), set[str](), list[str](), [PLAIN_HTTP]
    for value in acl.values:
        try:
            some, more = _paths(value)
        except regexes.NotFinite as error:
            instead = "write it as ^/begin, \\.end$ or a text, with letters, digits and dots (\\.) alone"
            unclear.append(_bad(value, report, str(error), instead))
            nearest |= _nearest_paths(value)
            continue
        exact |= some
        wide |= more
        nearest |= _nearest_paths(value) if more else some
    if wide and not unclear:
        unclear, most = ["paths that end so match with any query"], [_by_paths(exact | wide)]
    found, near = ((_by_paths(each),) if each else () for each in (exact, nearest))
    return replace(_plain(found, "; ".join(unclear), tuple(most)), nearest=near)


def _by_paths(patterns: set[str]) -> Region:
    return Region(methods=PLAIN, paths=frozenset(patterns))


def _nearest_paths(value: Value) -> set[str]:
    """Patterns for paths alone, in small letters and in capitals; none where the expression has others."""
    try:
        patterns = {each for text in regexes.texts_of(value.text) for each in _patterns(text)}
    except regexes.NotFinite:
        return set()
    return {each for whole in patterns for each in ((whole.lower(), whole.upper()) if value.any_case else (whole,))}


def _paths(value: Value) -> tuple[set[str], set[str]]:
    """Patterns of what certainly matches, and those of what matches with some queries only. Raises `NotFinite`."""
    exact, wide = set[str](), set[str]()
    for text in regexes.texts_of(value.text):
        for pattern in _patterns(text):
            spellings = _cases(pattern, value.any_case)
            (wide if text.endswith(regexes.END) else exact).update(spellings)
            exact.update(each for whole in spellings for each in _with_query(whole))
    return exact, wide


def _patterns(text: str) -> list[str]:
    """Patterns of the paths that have a text. Raises `NotFinite`."""
    body = text.removeprefix(regexes.START).removesuffix(regexes.END)
    if any(sign in body for sign in f"{regexes.START}{regexes.END}?*#%"):
        raise regexes.NotFinite("more than the beginning, the end or a part of a path")
    body = body.replace(regexes.ANY, "*") + ("" if text.endswith(regexes.END) else "*")
    found = [body] if text.startswith(regexes.START) else [f"/*{body}", *([body] if body.startswith("/") else [])]
    if not all(map(_PATH.fullmatch, found)):
        raise regexes.NotFinite("no path has that text")
    return found


def _with_query(pattern: str) -> Iterator[str]:
    """The same where a query is a part of what a `*` stands for; without those that are in the pattern itself."""
    for index, sign in enumerate(pattern):
        if sign == "*" and index < len(pattern) - 1:
            yield f"{pattern[:index]}*?*{pattern[index + 1 :]}"


def _cases(text: str, any_case: bool) -> list[str]:
    if not any_case:
        return [text]
    choices = [sorted({sign.lower(), sign.upper()}) for sign in text]
    if 2 ** sum(len(each) > 1 for each in choices) > CASES_MAX:
        raise regexes.NotFinite("paths are compared with regard to case")
    return ["".join(each) for each in product(*choices)]


def _url_regex(acl: Acl, _listener: Listener, report: Report, _draft: Draft) -> Condition:
    found: list[Condition] = []
    for value in acl.values:
        try:
            found.append(union([Condition((each,)) for each in _of_urls(value)]))
        except regexes.NotFinite as error:
            instead = "write the hosts as dstdomain and convert again; URLs inside of tunnels (https) are not visible"
            found.append(Condition((), _bad(value, report, str(error), instead), _url_most(value)))
    return union(found)


def _of_urls(value: Value) -> Iterator[Region]:
    """`^http://host/path`, and `^host:port$` of tunnels."""
    for text in regexes.texts_of(value.text):
        body = text.removeprefix(regexes.START)
        scheme, slashes, rest = body.partition("://")
        host, slash, path = rest.partition("/")
        if body == text or not slashes or not slash:
            raise regexes.NotFinite("only what begins with ^http://host/ names a host for certain")
        if scheme.lower() != "http":
            raise regexes.NotFinite(f"{scheme} URLs are in tunnels, and not visible")
        if any(sign in path for sign in "\x01\x02\x03?#*%"):
            raise regexes.NotFinite("only the beginning of a path is the same without the query")
        paths = frozenset(f"{each}*" for each in _cases(f"/{path}", value.any_case))
        yield Region(hosts=_host(host), ports=_port_of(host), paths=paths, methods=PLAIN)


def _host(authority: str) -> Names | Addresses:
    name = authority.partition(":")[0].lower()
    if values.is_address(name):
        raise regexes.NotFinite("a numeric host")
    if not is_host_name(name):
        raise regexes.NotFinite("it names no whole host")
    return Names(frozenset({name}), frozenset())


def _port_of(authority: str) -> Intervals:
    port = authority.partition(":")[2] or "80"
    if not port.isdecimal():
        raise regexes.NotFinite("a port that is no number")
    return Intervals(((int(port), int(port)),))


def _url_most(value: Value) -> tuple[Region, ...]:
    """A text with a slash is in no URL of a tunnel, which is host and port."""
    try:
        texts = regexes.texts_of(value.text)
    except regexes.NotFinite:
        return (EVERYTHING,)
    https = any(text.startswith(f"{regexes.START}https:") for text in texts)
    return (PLAIN_HTTP,) if not https and all("/" in text for text in texts) else (EVERYTHING,)


def _localport(acl: Acl, listener: Listener, _report: Report, _draft: Draft) -> Condition:
    spans = Intervals.of(span for value in acl.values for span in values.ports(value.text).ranges)
    return ALWAYS if spans & Intervals(((listener.port, listener.port),)) else NEVER


def _myportname(acl: Acl, listener: Listener, _report: Report, _draft: Draft) -> Condition:
    return ALWAYS if listener.name in {value.text for value in acl.values} else NEVER


def _manager(_acl: Acl, _listener: Listener, _report: Report, _draft: Draft) -> Condition:
    return NEVER


def _unknown(why: str) -> Maker:
    def make(acl: Acl, _listener: Listener, _report: Report, _draft: Draft) -> Condition:
        return Condition((), f"{acl.kind} {why}")

    return make


_HEADERS = "matches fields of the request, which rules can't"
_RESPONSE = "matches the response, which rules can't"
_CLIENT_NAME = "matches the client's name; name its addresses by src"
_CALLOUT = "asks a program; accounts with an HTTP back end (auth.backend) are the nearest"
_CERTIFICATE = "matches certificates; accounts have certificates for that"

KINDS: dict[str, Maker] = {
    "src": _src,
    "dst": _dst,
    "dstdomain": _dstdomain,
    "dstdom_regex": _dstdom_regex,
    "port": _port,
    "method": _method,
    "proto": _proto,
    "time": _time,
    "proxy_auth": _proxy_auth,
    "urlpath_regex": _urlpath_regex,
    "url_regex": _url_regex,
    "localport": _localport,
    "myport": _localport,
    "myportname": _myportname,
    "manager": _manager,
    "maxconn": _unknown("stands beside other conditions"),
    "max_user_ip": _unknown("counts the addresses of a user; allow_clients of an account names them"),
    "arp": _unknown("matches hardware addresses; name the client's addresses by src"),
    "eui64": _unknown("matches hardware addresses; name the client's addresses by src"),
    "srcdomain": _unknown(_CLIENT_NAME),
    "srcdom_regex": _unknown(_CLIENT_NAME),
    "localip": _unknown("matches the address that the client has connected to; make a proxy for that address"),
    "proxy_auth_regex": _unknown("matches patterns of user names; give the accounts a tag and a rule with tag:NAME"),
    "ident": _unknown("asks the client's machine"),
    "ident_regex": _unknown("asks the client's machine"),
    "external": _unknown(_CALLOUT),
    "ext_user": _unknown(_CALLOUT),
    "ext_user_regex": _unknown(_CALLOUT),
    "browser": _unknown(_HEADERS),
    "referer_regex": _unknown(_HEADERS),
    "req_header": _unknown(_HEADERS),
    "req_mime_type": _unknown(_HEADERS),
    "urllogin": _unknown(_HEADERS),
    "rep_header": _unknown(_RESPONSE),
    "rep_mime_type": _unknown(_RESPONSE),
    "http_status": _unknown(_RESPONSE),
    "user_cert": _unknown(_CERTIFICATE),
    "ca_cert": _unknown(_CERTIFICATE),
    "peername": _unknown("matches the upstream that is used"),
    "src_as": _unknown("matches autonomous systems; name their networks"),
    "dst_as": _unknown("matches autonomous systems; a list of kind geo has them"),
    "random": _unknown("matches at random"),
    "note": _unknown("matches annotations"),
    "tag": _unknown("matches annotations"),
    "server_cert_fingerprint": _unknown("matches certificates of origins"),
    "ssl::server_name": _unknown("matches names inside of TLS; the name in CONNECT is matched by dstdomain"),
    "ssl::server_name_regex": _unknown("matches names inside of TLS; the name in CONNECT is matched by dstdomain"),
    "at_step": _unknown("is for ssl_bump"),
}
