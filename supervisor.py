"""The command `proxyfleet`: from the command line to a running product.

`serve` reads the settings, takes the locks, sees to it that there is an administrator, reads the wish once, binds the
API's socket and hands over to `actors.supervision.service`. The other commands work without the product running.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

import typer

from actors.process import set_up_logging
from actors.supervision.in_force import hidden_keys, with_stored
from actors.supervision.locks import LockedError, lock
from actors.supervision.service import Premises, Service
from actors.supervision.sockets import ListenError, listen
from config import VERSION
from config.certificates import CertificateError, server_context
from config.data_format import NAME as FORMAT_FILE
from config.data_format import refuse_newer
from config.live import BadStored, Stored
from config.paths import DataDir, PathError, default_data_dir, default_run_dir, open_data_dir, open_run_dir
from config.settings import ENV_PREFIX, ConfigError, Settings, load
from config.units import timestamp_text

T = TypeVar("T")

app = typer.Typer(
    name="proxyfleet",
    help="A forward-proxy service with a management API.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

ConfigOption = Annotated[Path | None, typer.Option("--config", envvar=f"{ENV_PREFIX}CONFIG", help="A TOML file.")]
DataOption = Annotated[Path | None, typer.Option("--data-dir", help="What must outlive the product.")]
RunOption = Annotated[Path | None, typer.Option("--run-dir", help="Sockets and locks; a short path.")]


@app.command()
def serve(
    config: ConfigOption = None,
    data_dir: DataOption = None,
    run_dir: RunOption = None,
    host: Annotated[str | None, typer.Option(help="Where the management API listens: address.")] = None,
    port: Annotated[int | None, typer.Option(help="Where the management API listens: port.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning, error or critical.")] = None,
) -> None:
    """Run the product in the foreground until SIGTERM or Ctrl-C."""
    overrides = _given(
        {
            "data_dir": data_dir,
            "run_dir": run_dir,
            "server": _given({"host": host, "port": port}),
            "logging": _given({"level": log_level}),
        }
    )
    settings = _settings(lambda: load(config, overrides))
    os.environ.pop(f"{ENV_PREFIX}ADMIN_PASSWORD", None)  # the actors inherit the environment
    raise typer.Exit(run(settings, lambda: load(config, overrides)))


@app.command()
def check_config(config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Say whether the configuration is good, and what is wrong with it; and what was set through the API instead."""
    from api.offline import peek_settings  # as below

    settings = _settings(lambda: load(config, _given({"data_dir": data_dir})))
    data = DataDir(settings.data_dir or default_data_dir())
    if os.access(data.path, os.R_OK | os.X_OK):  # else it is somebody who wants to know of the configuration alone
        _refuse_newer(data.path)
    stored = _translated(ValueError, lambda: peek_settings(data))
    _translated(BadStored, lambda: with_stored(settings, stored))
    typer.echo("The configuration is good.")
    for sentence in hidden_keys(settings, stored):
        typer.echo(f"note: {sentence}")


@app.command()
def reset_settings(config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Forget what was set through the API, while the product doesn't run; the configuration alone counts again."""
    from api.offline import reset_settings as reset
    from api.store import StoreError

    data = _offline(config, data_dir)
    try:
        forgotten = reset(data)
    except StoreError as error:
        _fail(str(error))
    typer.echo(f"Forgotten: {', '.join(forgotten)}." if forgotten else "Nothing was set through the API.")


@app.command()
def rotate_signing_key(config: ConfigOption = None, data_dir: DataOption = None) -> None:
    """Sign access tokens with a new key, while the product doesn't run; nobody is signed out."""
    from api.offline import rotate_signing_key as rotate
    from api.store import StoreError

    data = _offline(config, data_dir)
    key_id, until = _translated(StoreError, lambda: rotate(data))
    typer.echo(
        f"Tokens are signed with the key {key_id}; those of the older one are taken until {timestamp_text(until)}."
    )


@app.command()
def reset_password(
    user: Annotated[str, typer.Argument(help="The user name.")],
    config: ConfigOption = None,
    data_dir: DataOption = None,
    password: Annotated[
        str | None, typer.Option(envvar=f"{ENV_PREFIX}NEW_PASSWORD", help="The new one; random if not given.")
    ] = None,
) -> None:
    """Give a user a new password while the product doesn't run."""
    from api.offline import reset_password as reset  # the store costs time to import, and only this needs it here
    from api.store import StoreError

    data = _offline(config, data_dir)
    try:
        fresh = reset(data, user, password)
    except (StoreError, LookupError, ValueError) as error:
        _fail(str(error))
    typer.echo(f"The password of {user} is now: {fresh}" if password is None else f"The password of {user} is changed.")


audit_app = typer.Typer(help="The audit trail.", no_args_is_help=True)
app.add_typer(audit_app, name="audit")


@audit_app.command("verify")
def verify_audit(
    config: ConfigOption = None,
    data_dir: DataOption = None,
    head: Annotated[
        str | None, typer.Option(help="SEQ:HASH as an earlier verify printed it; it must be in the chain.")
    ] = None,
) -> None:
    """Follow the hash chain of the audit trail; ends with 1 and names the row when it is broken. Only reads."""
    from api.audit import Broken, verify
    from api.store import StoreError

    settings = _settings(lambda: load(config, _given({"data_dir": data_dir})))
    noted = _noted(head)
    data = DataDir(settings.data_dir or default_data_dir())
    _refuse_newer(data.path)
    found = _translated(StoreError, lambda: verify(data, noted))
    if isinstance(found, Broken):
        _fail(f"row {found.seq} {found.error}")
    typer.echo(f"The audit trail is whole: {found.seq} rows.\nhead {found.seq}:{found.hash}")


def _noted(text: str | None) -> Any:
    from api.audit import Head

    if text is None:
        return None
    match = re.fullmatch(r"([0-9]{1,18}):([0-9a-f]{64})", text, re.ASCII)
    return Head(int(match[1]), match[2]) if match else _fail("--head: must be a number, a colon and 64 hex digits")


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(f"proxyfleet {VERSION}")


def run(settings: Settings, reload: Callable[[], Settings]) -> int:
    """Everything from the settings to the end of the product; its exit status."""
    from api.first_start import ensure_administrator  # api is above actors, and the offline commands don't need it
    from api.store import StoreError
    from api.wish import read_stored_settings, read_wish

    os.umask(0o077)
    set_up_logging(settings.logging.level, settings.logging.format)
    data = _open_data(settings)
    run_dir = _translated(PathError, lambda: open_run_dir(settings.run_dir or default_run_dir(data.path)))
    locks = (_locked(data.lock, "data directory"), _locked(run_dir.lock, "run directory"))
    _bring_up_to_date(data)
    stored = _translated(StoreError, lambda: read_stored_settings(data))
    base, settings = settings, _in_force(settings, stored)
    set_up_logging(settings.logging.level, settings.logging.format)
    _check_certificate(settings)
    api_socket = _listen(settings, stored)
    try:
        given = settings.admin_password.get_secret_value() if settings.admin_password else None
        password = ensure_administrator(data, given)
        wish = read_wish(data)
    except StoreError as error:
        _fail(str(error))
    except ValueError as error:  # nothing else is given to them than the password
        _fail(f"admin_password: {error}")
    _show_password(data, password)
    premises = Premises(data, run_dir, locks, api_socket)
    service = Service(base, premises, reload, lambda: _greet(settings, data, api_socket), stored=stored)
    return service.run(wish)


def _show_password(data: DataDir, password: str | None) -> None:
    """The first administrator's password, once. Under systemd standard output is a log: there only the file has it."""
    if password is None:
        return
    shown = "" if os.environ.get("JOURNAL_STREAM") else f"\n  password: {password}"
    sys.stdout.write(f"The administrator `admin` was created.{shown}\n  also in: {data.initial_password}\n")
    sys.stdout.flush()


def _greet(settings: Settings, data: DataDir, api_socket: socket.socket) -> None:
    """Where the API is, how to sign in, what to try next."""
    host, port = settings.server.host, api_socket.getsockname()[1]
    scheme = "https" if settings.server.tls.enabled else "http"
    base = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    known = f"the password in {data.initial_password}" if data.initial_password.exists() else "your password"
    sys.stdout.write(f"""
Proxyfleet {VERSION} is running.
  API       {base}/api/v1
  sign in   as `admin` with {known}
  try       curl -u admin {base}/api/v1/health
  read      {base}/api/v1/docs
  end       Ctrl-C

""")
    sys.stdout.flush()


# --- from trouble to a sentence and exit status 1 ---


def _settings(read: Callable[[], Settings]) -> Settings:
    return _translated(ConfigError, read)


def _open_data(settings: Settings) -> DataDir:
    folder = settings.data_dir or default_data_dir()
    _refuse_newer(folder)  # before the directory is given its mode and its lock file: nothing of it is touched
    return _translated(PathError, lambda: open_data_dir(folder))


def _refuse_newer(folder: Path) -> None:
    from api.store.steps import DATA_FORMAT  # as all of the store

    _translated(PathError, lambda: refuse_newer(folder, DATA_FORMAT))


def _bring_up_to_date(data: DataDir) -> None:
    """With the lock of the data directory held, before anything of it is read."""
    from api.store import steps
    from api.store.migration import bring_up_to_date

    _translated(PathError, lambda: bring_up_to_date(data, steps.STEPS))


def _locked(file: Path, what: str) -> int:
    try:
        return lock(file, what)
    except (LockedError, OSError) as error:
        _fail(str(error))


def _listen(settings: Settings, stored: Stored) -> socket.socket:
    try:
        return listen(settings.server.host, settings.server.port)
    except ListenError as error:
        through_api = bool({"host", "port"} & stored.get("server", {}).keys())
        hint = "; it was set through the API, and `proxyfleet reset-settings` forgets that" if through_api else ""
        _fail(f"server.{error.field}: {error.error}{hint}")


def _check_certificate(settings: Settings) -> None:
    tls = settings.server.tls
    if not tls.enabled or tls.cert_file is None or tls.key_file is None:
        return
    try:
        server_context(tls.cert_file, tls.key_file)
    except CertificateError as error:
        _fail(f"server.tls.{error.field}: {error.error}")


def _in_force(settings: Settings, stored: Stored) -> Settings:
    try:
        return with_stored(settings, stored)
    except BadStored as error:
        _fail(f"{error}, as set through the API; `proxyfleet reset-settings` forgets that")


def _offline(config: Path | None, data_dir: Path | None) -> DataDir:
    """The data directory of a product that doesn't run, locked."""
    settings = _settings(lambda: load(config, _given({"data_dir": data_dir})))
    folder = settings.data_dir or default_data_dir()
    if not (folder / "store").is_dir() and not (folder / FORMAT_FILE).is_file():
        _fail(f"{folder}: there is no configuration here; name its directory with --data-dir")
    data = _open_data(settings)
    _locked(data.lock, "data directory")
    _bring_up_to_date(data)
    return data


def _translated(kind: type[Exception], call: Callable[[], T]) -> T:
    try:
        return call()
    except kind as error:
        _fail(str(error))


def _fail(text: str) -> NoReturn:
    for line in text.splitlines():
        typer.echo(f"proxyfleet: {line}", err=True)
    raise typer.Exit(1)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """Only what was said on the command line."""
    return {name: value for name, value in options.items() if value is not None and value != {}}


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
