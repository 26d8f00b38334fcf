"""Responses of the management API as data or `CommandError`, and errors of requests without a response."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from api.cli.errors import CommandError, Status

if TYPE_CHECKING:  # requests is loaded by the first call
    import requests

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
