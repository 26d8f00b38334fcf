"""From squid.conf to a document."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from api.import_export.convert.draft import Draft
from api.import_export.convert.passwords import add_accounts, entries_of
from api.import_export.convert.report import Effect, Report
from api.import_export.convert.squid import bandwidth, header_fields, sources
from api.import_export.convert.squid.acls import Acls, Listener
from api.import_export.convert.squid.directives import carry_over
from api.import_export.convert.squid.gathered import Gathered
from api.import_export.convert.squid.lexer import Reader
from api.import_export.convert.squid.pools import Pools
from api.import_export.convert.squid.rules import PolicyMaker
from api.import_export.convert.statements import Accepted, Files, Statement, UnreadableFile

_BY_LISTENER = frozenset({"localport", "myport", "myportname", "localip"})


def convert(path: Path, draft: Draft, report: Report, files: Files, timezone: str, accepted: Accepted) -> None:
    """Carry over a squid.conf to `draft`. Raises `UnreadableFile`."""
    gathered = Gathered(path, draft, report, files, Acls(draft, report, files), accepted)
    reader = Reader(files, report)
    for statement in reader.read(path):
        carry_over(gathered, statement)
    for statement in reader.missing:
        why = "the file can't be read, and may deny something"
        gathered.block(statement, why, "copy it here, or name its place by --root, and convert again")
    _prepare(gathered, path)
    pools = Pools(draft, report)
    _policies(gathered, pools, timezone)
    for port in gathered.ports:
        draft.proxies.append({**port.proxy, **gathered.fields})
    _report_unused(gathered)


def _prepare(gathered: Gathered, path: Path) -> None:
    _take_connection_limits(gathered)
    bandwidth.limit(gathered)
    if headers := header_fields.headers_of(gathered):
        gathered.fields["headers"] = headers
    sources.finish(gathered)
    if _asks_for_accounts(gathered):
        gathered.fields["auth"] = {"enabled": True}
        _accounts(gathered, path)
        _compare_order(gathered)
    if not gathered.lists.get("http_access"):
        why = "there is no http_access line, and then squid refuses everything; so do the rules"
        gathered.report.add(Effect.DIFFERS, None, why, "add http_access lines, and convert again", about="http_access")
    _guard(gathered)


# --- the policy ---------------------------------------------------------------------------------------------------


def _policies(gathered: Gathered, pools: Pools, timezone: str) -> None:
    """One policy for all ports, unless access lists ask for the port: then one for each that differs."""
    made: dict[str, str] = {}
    for port in gathered.ports:
        listener = port.listener if _differ_by_port(gathered) else Listener()
        rules = PolicyMaker(gathered, listener, pools, timezone).rules()
        content = hashlib.sha256(json.dumps(rules).encode()).hexdigest()
        if content not in made:
            made[content] = gathered.draft.object_name("squid")
            gathered.draft.policies.append({"name": made[content], "rules": rules})
        port.proxy["policy"] = made[content]
    if not gathered.ports:
        why = "no http_port or https_port could be carried over, so there is no proxy"
        gathered.report.add(Effect.LOST, None, why, "add a http_port line, and convert again", about="http_port")


def _differ_by_port(gathered: Gathered) -> bool:
    return any(acl.kind in _BY_LISTENER for acl in gathered.acls.defined())


def _take_connection_limits(gathered: Gathered) -> None:
    """`http_access deny … MAXCONN` is a limit of the proxy, which is stricter where it has other conditions."""
    kept = []
    for statement in gathered.lists.get("http_access", []):
        limits = [name for name in statement.words[1:] if gathered.acls.kind_of(name) == "maxconn"]
        if statement.words[:1] != ("deny",) or not limits:
            kept.append(statement)
            continue
        gathered.acls.used.update(each.lower() for each in statement.words[1:])
        _limit_connections(gathered, statement, limits)
        if len(statement.words) > 1 + len(limits) and statement.words[1:] != ("all", *limits):
            why = "the limit of connections is for all clients, not only for those that the line names"
            gathered.report.add(Effect.REFUSES, statement, why, "limit the connections of accounts or plans instead")
    if "http_access" in gathered.lists:
        gathered.lists["http_access"] = kept


def _limit_connections(gathered: Gathered, statement: Statement, names: list[str]) -> None:
    limits = gathered.fields.setdefault("limits", {})
    for name in names:
        acl = gathered.acls.find(name)
        number = acl.values[0].text if acl is not None and acl.values else ""
        if not number.isdecimal():
            gathered.block(statement, f"{name} has no number", "write a number, and convert again")
            continue
        limits["connections_per_client"] = min(int(number) or 1, limits.get("connections_per_client", 10**6))


# --- accounts -----------------------------------------------------------------------------------------------------


def _asks_for_accounts(gathered: Gathered) -> bool:
    lines = [each for name in gathered.lists for each in gathered.lists[name]]
    return any(_needs_account(gathered, word.removeprefix("!")) for line in lines for word in line.words[1:])


def _needs_account(gathered: Gathered, name: str, depth: int = 0) -> bool:
    acl = gathered.acls.find(name)
    if acl is None or depth > 16:
        return False
    if acl.kind in ("any-of", "all-of"):
        return any(_needs_account(gathered, value.text.removeprefix("!"), depth + 1) for value in acl.values)
    return acl.kind in ("proxy_auth", "proxy_auth_regex", "max_user_ip")


def _accounts(gathered: Gathered, path: Path) -> None:
    names = [port.proxy["name"] for port in gathered.ports]
    for statement, file in gathered.password_files:
        found = gathered.files.find(file, path.parent)
        try:
            add_accounts(gathered.draft, gathered.report, entries_of(gathered.files.read(found), str(found)))
        except UnreadableFile as error:
            instead = "copy the file here or name its place by --root, or create the accounts by hand"
            gathered.report.add(Effect.REFUSES, statement, f"{error}; so no account has a password", instead)
    for account in gathered.draft.accounts:
        account["proxies"] = {"names": names}
    if not gathered.schemes:
        why = "access lists ask for users, and no auth_param says how passwords are checked"
        gathered.report.add(Effect.REFUSES, None, why, "create accounts for the proxies", about="auth_param")


def _compare_order(gathered: Gathered) -> None:
    """squid asks for credentials at the line that needs them, a proxy here before the first."""
    for statement in gathered.lists.get("http_access", []):
        if any(_needs_account(gathered, word.removeprefix("!")) for word in statement.words[1:]):
            return
        if statement.words[:1] == ("allow",):
            why = "clients that this line allows without a password need one here"
            instead = "make a proxy at another port for them, without auth and with access.allow_clients"
            gathered.report.add(Effect.REFUSES, statement, why, instead)


# --- the rest -----------------------------------------------------------------------------------------------------


def _guard(gathered: Gathered) -> None:
    """squid connects wherever its rules allow. The egress guard stands before all rules, and is never lifted here."""
    why = "squid connects to private and loopback addresses where its rules allow them, a proxy here doesn't"
    instead = (
        "name internal targets in proxy.egress_allow of the configuration, internal name servers in proxy.dns_allow"
    )
    gathered.report.add(Effect.DIFFERS, None, why, instead, about="egress guard")


def _report_unused(gathered: Gathered) -> None:
    for acl in gathered.acls.defined():
        if acl.name.lower() not in gathered.acls.used:
            why = f"no line that was carried over uses {acl.name}"
            gathered.report.add(Effect.UNNEEDED, acl.statement, why, about=f"acl {acl.name}")
