"""How a command ends: exit statuses, and `CommandError`, an error as data, also of a response or of a missing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # requests is loaded by the first call
    import requests


class Status(IntEnum):
    """Exit statuses; a part of the interface, listed in `docs/command-line.md`."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_AUTHORISED = 4
    NOT_FOUND = 5
    DIFFERENT = 6
    INTERRUPTED = 130


MEANINGS = {
    Status.OK: "done",
    Status.FAILED: "refused, or failed; the message says why",
    Status.USAGE: "the command line is wrong: an unknown option, a missing argument, a value that can't be read; or a "
    "file can't be read",
    Status.UNREACHABLE: "the management API can't be reached, or another server responds at its address",
    Status.NOT_AUTHORISED: "not signed in, or without the permission that is needed",
    Status.NOT_FOUND: "there is no such object",
    Status.DIFFERENT: "`apply --check`: what is configured differs from the file; `convert --compare`: "
    "requests are decided in another way",
    Status.INTERRUPTED: "Ctrl-C",
}

OF_RUN = {
    "125": "`run`: the command can't be isolated; nothing has run",
    "126": "`run`: the command can't be executed",
    "127": "`run`: there is no such command",
    "128 + n": "`run`: signal n has ended the command; any other status is the command's own",
}

EXIT_STATUSES = (
    "0 done, 1 refused or failed, 2 a wrong command line, 3 the API can't be reached, 4 not signed in or not "
    "permitted, 5 no such thing, 6 apply --check or convert --compare found differences, 130 Ctrl-C"
)
"""A short form for the help."""


@dataclass(eq=False)
class CommandError(Exception):
    """A command failed: the message, a hint what to do next, and the exit status.

    `problems` are (field, error) pairs from a response of the API, `error` is its error object, if the API sent one.
    `options` has the command's option for each field whose name differs.
    """

    message: str
    hint: str | None = None
    status: Status = Status.FAILED
    problems: tuple[tuple[str | None, str], ...] = ()
    error: dict[str, Any] | None = None
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.message

    def label(self, field: str) -> str:
        """A field with the option that sets it, or the group it is in: `url (--target)`."""
        names = (name for name in self.options if field == name or field.startswith((f"{name}.", f"{name}[")))
        option = next((self.options[name] for name in names), None)
        return f"{field} ({option})" if option else field

    def as_data(self) -> dict[str, Any]:
        """For programs: the API's error object, or one of the same members."""
        made = {"code": self.status.name, "message": self.message, "details": {}}
        return {**(self.error or made), "hint": self.hint, "exit_status": int(self.status)}


def combined(failures: Sequence[tuple[str, CommandError]]) -> CommandError:
    """One error of several, each with the name of its resource; hint and exit status are those of the first."""
    message = "\n".join(f"{name}: {each.message}" for name, each in failures)
    alone = len(failures) == 1
    problems = tuple(
        (field if alone or not field else f"{name}: {field}", error)
        for name, each in failures
        for field, error in each.problems
    )
    first = failures[0][1]
    return CommandError(message, first.hint, first.status, problems, first.error)


# --- responses of the management API ---

Credential = Literal["key", "login"] | None
"""The credential of a request."""


def error_of(response: requests.Response) -> dict[str, Any]:
    """The error object of the envelope; empty if there is none."""
    try:
        error = response.json().get("error")
    except (ValueError, AttributeError):
        return {}
    return error if isinstance(error, dict) else {}


def data_of(response: requests.Response, url: str, by: Credential = None) -> Any:
    """`data` of the envelope. Raises `CommandError`."""
    try:
        envelope = response.json()
        success = envelope["success"]
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(
            f"The server at {url} is not the management API (status {response.status_code})",
            "Give its address with --url or PROXYFLEET_URL",
            Status.UNREACHABLE,
        ) from error
    if success:
        return envelope["data"]
    raise refused(response.status_code, envelope["error"], by)


_STATUSES = {401: Status.NOT_AUTHORISED, 403: Status.NOT_AUTHORISED, 404: Status.NOT_FOUND}


def refused(status_code: int, error: dict[str, Any], by: Credential = None) -> CommandError:
    """The error of a response, with a hint what to do next."""
    details = error.get("details") or {}
    each = details.get("errors") or ([details] if "error" in details else [])
    problems = tuple((one.get("field"), str(one.get("error"))) for one in each)
    message = str(error.get("message"))
    if details.get("reason"):
        message += f": {details['reason']}"
    hint = _hint(status_code, error, details, by)
    return CommandError(message, hint, _STATUSES.get(status_code, Status.FAILED), problems, error)


_SIGN_IN: dict[Credential, str] = {
    None: "Sign in: proxyfleet login; or give --key",
    "login": "Sign in again: proxyfleet login",
    "key": "The API key of --key or PROXYFLEET_API_KEY was used, not a login: give another one, or none",
}


_OF_A_FLEET = {
    "NOT_A_FLEET": "To join the fleet of others: proxyfleet cluster join TOKEN",
    "DATABASE_UNAVAILABLE": "Proxies and reading go on; try again when the database is back. On the node: "
    "proxyfleet cluster status",
    "OUTCOME_UNKNOWN": "Look whether it was made before you repeat it; the audit trail has what became of it",
    "FLEET_LEVEL": "All nodes need the same release for this: proxyfleet nodes; then proxyfleet upgrade on those",
    "BEHIND": "This node is behind: proxyfleet nodes; or ask another one with --url",
}


def _permission_text(permission: str) -> str:
    """`admin` is granted by the role alone."""
    if permission == "admin":
        return "the role administrator (auditor is enough to read the audit trail)"
    return f"the permission {permission}"


def _hint(status_code: int, error: dict[str, Any], details: dict[str, Any], by: Credential) -> str | None:
    if status_code == 401:
        return _SIGN_IN[by]
    if details.get("required_permission"):
        return f"Ask an administrator for {_permission_text(details['required_permission'])}; yours: proxyfleet whoami"
    if error.get("code") == "RATE_LIMITED":
        limits = "the limits are security.rate_limiting in the configuration"
        return f"Try again in {details.get('retry_after', 60)} s; {limits}"
    if error.get("code") in _OF_A_FLEET:
        return _OF_A_FLEET[error["code"]]
    if error.get("code") == "NO_MANAGEMENT_API":
        places = ", ".join(details.get("full_nodes", ()))
        return f"Ask a full node with --url: {places or 'proxyfleet nodes on one of them has their addresses'}"
    if status_code >= 500:
        request = details.get("request_id")
        return f"The log of the product has more under the request id {request}" if request else None
    return None


def unreachable(url: str, error: Exception) -> CommandError:
    """The error of a request that got no response, with a hint about its cause."""
    from http.client import HTTPException
    from ssl import SSLCertVerificationError

    from requests.exceptions import ProxyError, SSLError, Timeout

    cause = _innermost(error)
    if isinstance(error, SSLError) and isinstance(cause, SSLCertVerificationError):
        hint = "--ca-file FILE (or PROXYFLEET_CA_FILE) names the certificate authority to trust"
        message = f"{url}: the certificate is not trusted: {cause.verify_message or cause}"
        return CommandError(message, hint, Status.UNREACHABLE)
    if isinstance(error, SSLError):
        hint = f"Without TLS: --url http{url.removeprefix('https')}"
        return CommandError(f"TLS handshake with {url} failed: {_words(cause)}", hint, Status.UNREACHABLE)
    if isinstance(error, Timeout):
        return CommandError(f"No response from {url} in time", "--timeout sets a longer time", Status.UNREACHABLE)
    if isinstance(error, ProxyError):
        hint = "no_proxy names hosts that are reached without the proxy of the environment"
        message = f"{url} can't be reached through the proxy that the environment names: {_words(cause)}"
        return CommandError(message, hint, Status.UNREACHABLE)
    hint = "Does it run? Start it: proxyfleet serve; or give its address with --url or PROXYFLEET_URL"
    if url.startswith("http:") and isinstance(cause, (HTTPException, ConnectionResetError)):  # not an HTTP server
        hint = f"Is it the management API, and does it speak TLS? --url https{url.removeprefix('http')}"
    return CommandError(f"{url} can't be reached: {_words(cause)}", hint, Status.UNREACHABLE)


def cause_of(error: BaseException) -> str:
    """The text of the innermost error."""
    return _words(_innermost(error))


def _innermost(error: BaseException) -> BaseException:
    """The cause: requests and urllib3 wrap it several times."""
    while True:
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            return error
        error = inner


def _words(error: BaseException) -> str:
    return str(getattr(error, "strerror", None) or error)
