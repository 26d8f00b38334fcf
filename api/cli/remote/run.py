"""`proxyfleet run`: a command behind a proxy, with a credential that lives as long as the command."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from socket import create_server
from typing import Any

import typer

from api.cli.client import quoted, trust_in
from api.cli.commands import RUN, TOP, Given, Session, command, discard_output
from api.cli.documents import body_of, toml_string
from api.cli.errors import CommandError, Status
from api.cli.isolated_job import FAILED
from api.cli.isolation import (
    IsolationUnavailable,
    RelayedProxy,
    check_isolation,
    run_at_listener,
    run_at_socket,
    run_isolated,
)
from api.cli.job import NOT_EXECUTABLE, NOT_FOUND, hide_from_job, run_job, signals_blocked, was_asked_to_end
from api.cli.options import PROXY, account_id, argument, file_option, flag, text, texts
from api.cli.quantities import SPANS
from api.cli.remote.accounts import ttl_of
from api.cli.remote.job_proxies import (
    Candidate,
    JobProxy,
    is_forbidden,
    job_environment,
    of_account,
    of_secret,
    open_to_all,
)
from config.settings.env import ENV_PREFIX
from config.text.formatting import counted, parse_moment

TTL = "10m"
RECORDED_WITHIN = 2.0
"""Seconds after which a record of a request can be found (docs/logs.md)."""
LOOPBACK = "127.0.0.1"
NAME_MAX = 100
SECRET_MAX = 1024
"""Bytes of a file with a secret."""


_ALLOW = (
    "Only to this host, domain or network; may be given several times. Write the port: without one, all are allowed."
)
_SOCKET = "Instead of --isolate, have the proxy listen at this Unix socket, for a container without a network."
_RUN = {
    "job": argument("COMMAND", "The command and its arguments, after --.", list[str]),
    "account": text("--account", "Make a credential of this account for it; user name or id."),
    "ttl": text("--ttl", f"How long the credential lives at most; by default {TTL}. {SPANS}", metavar="SPAN"),
    "allow_destinations": texts("--allow", _ALLOW, metavar="HOST:PORT"),
    "credential": file_option("--credential", "Instead of --account, a file with USER:SECRET: no summary."),
    "proxy": text("--proxy", "The proxy: name, id or URL; default: the first that speaks HTTP.", complete=PROXY),
    "proxy_ca": file_option("--proxy-ca", "A PEM file with the authority of an https proxy to trust."),
    "isolate": flag("--isolate", "In a network of its own, where only the proxy can be reached."),
    "socket": file_option("--socket", _SOCKET, metavar="PATH"),
    "quiet": flag("--quiet -q", "Don't print what was refused."),
}


_SETTINGS = {"allow_interspersed_args": False}
"""Behind the first word that is no option, all are the job's."""


@command(TOP, "run", _RUN, {"ttl": "--ttl"}, rich_help_panel=RUN, context_settings=_SETTINGS)
def run(session: Session, job: list[str], account: str | None, proxy: str | None, fields: Given) -> None:
    """Run a command that uses a proxy, with a credential of its own that is revoked when it ends.

    The exit status is that of the command, and 128 and its number where a signal has ended it; 127 where there is no
    such command, 126 where it can't be executed, 125 where it can't be isolated. 1 to 5, as of other commands, where
    nothing has run.
    """
    credential, socket = fields["credential"], fields["socket"]
    _check(account, fields)
    missing = _unusable(session, job[0])
    if missing is not None:
        raise typer.Exit(missing)
    if fields["isolate"] and socket is not None:
        raise CommandError("Give one of --isolate and --socket", status=Status.USAGE)
    if fields["isolate"]:
        _check_isolation(session)
    own_ca = fields["proxy_ca"]
    runner = _Runner(session, job, trust_in("--proxy-ca", own_ca), own_ca is not None, fields["isolate"], socket)
    if account is not None:
        ttl, allowed = ttl_of(fields["ttl"] or TTL), fields["allow_destinations"]
        body = {"name": _name_of(job), "ttl": ttl, "allow_destinations": allowed}
        status = _run_minted(runner, account, proxy, body, fields["quiet"])
    elif credential is not None:
        username, secret = _read(session, credential)
        status = runner.run(of_secret(session.api, username, proxy), secret)
        if not fields["quiet"]:
            _note(session, "proxyfleet: what was refused is known only for a credential that run makes: --account")
    else:
        status = runner.run(open_to_all(session.api, proxy))
    raise typer.Exit(status)


@dataclass(frozen=True, slots=True)
class _Runner:
    """Runs the command with a proxy. `trust` is for an https proxy, `own_ca` says that more than public ones are in it.

    Many programs speak no TLS to a proxy, and those that do agree on no variable for its authority. So it is a relay
    of ours that does, at a port of the loopback interface where the job has no network of its own.
    """

    session: Session
    command: Sequence[str]
    trust: ssl.SSLContext
    own_ca: bool
    isolate: bool
    socket: Path | None

    def run(self, candidate: Candidate, secret: str = "") -> int:
        """The exit status. Raises `CommandError`."""
        if candidate.private_ca and not self.own_ca:
            name = candidate.proxy.name
            _note(self.session, f"note: the certificate of {name} is not of a public authority: give --proxy-ca FILE")
        hide_from_job(ENV_PREFIX, "--key")
        try:
            return self._start(replace(candidate.proxy, secret=secret))
        except IsolationUnavailable as unavailable:
            self.session.out.error(CommandError(str(unavailable)))
            return FAILED
        except OSError as error:
            self.session.out.error(CommandError(f"{self.command[0]}: {error.strerror or error}"))
            return NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_EXECUTABLE

    def _start(self, proxy: JobProxy) -> int:
        """The exit status. Raises `IsolationUnavailable`, and `OSError` of execve(2)."""
        secured = proxy.scheme == "https"
        behind = RelayedProxy(proxy.host, proxy.port, self.trust if secured else None)
        near = replace(proxy, scheme="http" if secured else proxy.scheme, host=LOOPBACK)
        if self.isolate:
            return run_isolated(self.command, job_environment(os.environ, near), [behind])
        if self.socket is not None:
            return run_at_socket(self.command, job_environment(os.environ, near), behind, self.socket)
        if not secured:
            return run_job(self.command, job_environment(os.environ, proxy))
        with create_server((LOOPBACK, 0)) as listener:
            near = replace(near, port=listener.getsockname()[1])
            return run_at_listener(self.command, job_environment(os.environ, near), behind, listener)


def _check_isolation(session: Session) -> None:
    """End with `FAILED` where isolation is forbidden: never a run without."""
    try:
        check_isolation()
    except IsolationUnavailable as unavailable:
        session.out.error(CommandError(str(unavailable)))
        raise typer.Exit(FAILED) from unavailable


def _check(account: str | None, fields: Given) -> None:
    """Raises `CommandError` for options that contradict each other."""
    if account is not None and fields["credential"] is not None:
        hint = "--account makes a credential for this run, --credential takes one that there is"
        raise CommandError("Give one of --account and --credential", hint, Status.USAGE)
    if account is None and (fields["ttl"] is not None or fields["allow_destinations"]):
        given = "--allow" if fields["ttl"] is None else "--ttl"
        raise CommandError(f"{given} is for a credential that is made here: give --account", status=Status.USAGE)


def _unusable(session: Session, name: str) -> int | None:
    """The status of a shell where there is no such command, so that no credential is made for none."""
    if shutil.which(name) is not None:
        return None
    file = Path(name)
    if os.sep in name and file.exists():
        hint = "It is a directory" if file.is_dir() else f"chmod +x {shlex.quote(name)}"
        session.out.error(CommandError(f"{name}: not executable", hint))
        return NOT_EXECUTABLE
    hint = "Check its path" if os.sep in name else "Check its spelling, and whether its directory is in PATH"
    if os.sep not in name and file.is_file():
        hint = f"The file of this directory is {shlex.quote(f'./{name}')}"
    session.out.error(CommandError(f"{name}: no such command", hint))
    return NOT_FOUND


def _read(session: Session, file: Path) -> tuple[str, str]:
    """User name and secret; the name is empty where the file has a secret alone. Raises `CommandError`."""
    try:
        with file.open("rb") as opened:
            text = opened.read(SECRET_MAX + 1).decode()
    except OSError as error:
        raise CommandError(f"--credential: {file}: {error.strerror or error}", status=Status.USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"--credential: {file}: is not text in UTF-8", status=Status.USAGE) from error
    username, colon, secret = text.strip().partition(":")
    if not colon:
        username, secret = "", username
    if not secret or len(text) > SECRET_MAX or not (username + secret).isprintable():
        hint = "One line: USER:SECRET, or the secret alone"
        raise CommandError(f"--credential: {file}: holds no secret", hint, Status.USAGE)
    if not username:
        _note(session, f"note: {file} has no user name; pip and others send no credentials without: USER:SECRET")
    return username, secret


def _note(session: Session, text: str) -> None:
    """Print a line on standard error. Where it is full or has no reader, the line is lost, not the command's status."""
    try:
        session.out.note(text)
    except OSError:
        discard_output(session.out.err)


def _name_of(job: Sequence[str]) -> str:
    """What the credential is for: the program, without arguments, which may hold secrets."""
    name = "".join(each if each.isprintable() else "?" for each in Path(job[0]).name)
    return f"run {name}"[:NAME_MAX]


def _run_minted(runner: _Runner, account: str, named: str | None, body: dict[str, Any], quiet: bool) -> int:
    """Run it with a credential that is made for it and revoked at its end. Raises `CommandError`."""
    session = runner.session
    identifier = _account_id(session, account)
    candidate = of_account(session.api, identifier, named, account)
    path = f"/accounts/{quoted(identifier)}/credentials"
    with signals_blocked():  # from here on there is something to revoke
        data = session.api.post(path, body_of(body))
        made, began = data["credential"], time.monotonic()
        try:
            status = int(Status.INTERRUPTED) if was_asked_to_end() else runner.run(candidate, data["secret"])
        finally:
            ended = time.monotonic()
            _revoke(session, path, made)
    if ended - began >= _life(made):
        expired = f"the credential lapsed at {made['expires_at']}, before the command ended"
        _note(session, f"proxyfleet: {expired}: give a longer --ttl")
    if not quiet:
        time.sleep(max(0.0, ended + RECORDED_WITHIN - time.monotonic()))
        username = candidate.proxy.username if account == identifier else account
        _print_refusals(session, path, made, username)
    return status


def _account_id(session: Session, account: str) -> str:
    try:
        return account_id(session.api, account)
    except CommandError as error:
        if session.api.credential == "key" and is_forbidden(error):
            error.hint = "A key with a scope of accounts names the account by its id: --account acc_…"
        raise


def _life(credential: dict[str, Any]) -> float:
    """Seconds; an account that expires earlier has cut them."""
    return parse_moment(credential["expires_at"]) - parse_moment(credential["created_at"])


def _revoke(session: Session, path: str, credential: dict[str, Any]) -> None:
    """Revoke it; without the API its own end has to do."""
    try:
        session.api.delete(f"{path}/{credential['id']}")
    except CommandError as error:
        if error.status is not Status.NOT_FOUND:  # it has expired, or was revoked by another
            text = f"{credential['id']} could not be revoked; it lapses at {credential['expires_at']}"
            _note(session, f"proxyfleet: {text}: {error.message}")


def _print_refusals(session: Session, path: str, credential: dict[str, Any], username: str) -> None:
    """Print what was refused on standard error: standard output is the job's."""
    try:
        data = session.api.get(f"{path}/{credential['id']}/refusals", start_time=credential["created_at"])
    except CommandError as error:
        _note(session, f"proxyfleet: what was refused to the command is not known: {error.message}")
        return
    if session.out.format == "json":
        _note(session, json.dumps({"credential": credential["id"], **data}))
        return
    for line in summary(data["refusals"], data["complete"], username):
        _note(session, line if line.startswith(" ") else f"proxyfleet: {line}")


# --- what was refused, by host and reason, and what would allow it: lines of a policy, or options ---

TLS_NAME = "tls_name_denied"
ENTRIES = 20
"""Targets that are listed; a job may have tried thousands."""

Refusals = Sequence[dict[str, Any]]


def entry_of(refusal: dict[str, Any]) -> str:
    """The target as an entry of access rules, policies and `--allow`."""
    return refusal["host"] if refusal["port"] is None else f"{refusal['host']}:{refusal['port']}"


def summary(refusals: Refusals, complete: bool, account: str) -> list[str]:
    """Lines for people. `account` is the user name."""
    if not refusals:
        return []
    total = sum(each["records"] for each in refusals)
    lines = [f"refused to this job: {'' if complete else 'at least '}{counted(total, 'request')}"]
    lines += _listed(refusals)
    lines += _ways(refusals, account)
    return lines


def _listed(refusals: Refusals) -> list[str]:
    most = refusals[:ENTRIES]
    width = max(len(entry_of(each)) for each in most)
    lines = []
    for each in most:
        why = each["detail"] if each["reason"] == TLS_NAME else each["rule"]  # the detail has both names
        lines.append(f"  {each['records']:>5}  {entry_of(each):<{width}}  {each['reason']}{f' ({why})' if why else ''}")
    left = len(refusals) - len(most)
    return [*lines, f"         and {counted(left, 'other')}"] if left else lines


def _ways(refusals: Refusals, account: str) -> list[str]:
    """What would allow it, for each kind of reason that occurs."""
    lines: list[str] = []
    for reasons, way in _WAYS:
        entries = list(dict.fromkeys(entry_of(each) for each in refusals if each["reason"] in reasons))
        if entries:
            lines += way(entries[:ENTRIES], account)
    return lines


def _by_credential(entries: list[str], _account: str) -> list[str]:
    return ["to allow it, run the command with:", "  " + " ".join(f"--allow {shlex.quote(each)}" for each in entries)]


def _by_account(entries: list[str], account: str) -> list[str]:
    whose = f"of the account {account} or of its plan"
    return [f"to allow it, allow_destinations {whose} needs, and deny_destinations must not have:", _texts(entries)]


def _by_policy(entries: list[str], account: str) -> list[str]:
    return [
        "to allow it, the policy needs in front of the rule that refused:",
        *_rule(entries, account, "{}"),
        "from a file with all of its rules:",
        "  proxyfleet policies update NAME --from FILE",
    ]


def _by_access(entries: list[str], account: str) -> list[str]:
    lines = _rule(entries, account, '{ use = "direct" }')
    return ["to allow it, a policy of the account, of its plan or of the proxy needs:", *lines, *_applied(account)]


def _by_tls_name(entries: list[str], account: str) -> list[str]:
    what = "to allow any other name there, and what is not TLS, if you trust the host with both, a policy needs:"
    return [what, *_rule(entries, account, '{ tls_name = "record" }'), *_applied(account)]


def _by_guard(_entries: list[str], _account: str) -> list[str]:
    return ["no policy lifts the egress guard; proxy.egress_allow of the configuration does"]


def _rule(entries: list[str], account: str, action: str) -> list[str]:
    """A rule as `proxyfleet policies create --from` reads it."""
    name = f"allow {entries[0]}" + (" and others" if entries[1:] else "")
    destinations = ", ".join(map(toml_string, entries))
    return [
        "  [[rules]]",
        f"  name = {toml_string(name)}",
        f"  match = {{ accounts = [{toml_string(account)}], destinations = [{destinations}] }}",
        f"  action = {action}",
    ]


def _applied(account: str) -> list[str]:
    """How the lines come into force."""
    return [
        "from a file with these lines, as the policy of the account if it has none yet:",
        "  proxyfleet policies create NAME --from FILE",
        f"  proxyfleet accounts update {shlex.quote(account)} --policy NAME",
    ]


def _texts(entries: list[str]) -> str:
    return f"  {json.dumps(entries)}"


_WAYS: tuple[tuple[tuple[str, ...], Callable[[list[str], str], list[str]]], ...] = (
    (("credential_destination_not_allowed",), _by_credential),
    (("account_destination_denied", "account_destination_not_allowed"), _by_account),
    (("policy_denied",), _by_policy),
    (("destination_denied", "destination_not_allowed"), _by_access),
    ((TLS_NAME,), _by_tls_name),
    (("destination_ip_prohibited",), _by_guard),
)
"""By the reasons of records; limits and times have no line that would lift them."""
