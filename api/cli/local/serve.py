"""`proxyfleet serve`: from the command line to a running product.

It reads the settings, acquires the locks, ensures that there is an administrator, reads the desired state once, binds
the API's socket and starts `actors.supervision.supervisor`. The zygote was started before (`supervisor.py`).
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.commands import RUN, guarded
from api.cli.errors import CommandError
from api.cli.flags import FlagsCommand
from api.cli.local.offline import (
    ConfigOption,
    DataOption,
    bring_up_to_date,
    finish_restore,
    refuse_newer,
    settings_of,
    take_lock,
    translated,
)
from api.cli.terminal.output import Output
from config import VERSION
from config.settings.env import ENV_PREFIX

if TYPE_CHECKING:  # most commands need none of it, and should start fast
    from actors.bus.messages.fleet_objects import FleetObject
    from actors.bus.messages.specs import ProxySpec
    from actors.supervision.listeners.socket_activation import InheritedListeners
    from actors.supervision.processes.zygote_process import ZygoteProcess
    from actors.supervision.upgrade.handover import Handover
    from config.files.paths import DataDir
    from config.settings.runtime import Stored
    from config.settings.settings import Settings
    from config.settings.sources import Origins

RunOption = Annotated[Path | None, typer.Option("--run-dir", help="Sockets and locks; a short path.")]


def add_commands(app: typer.Typer) -> None:
    """Add `serve` to `app`: the only command that knows of its context, and has no output as JSON."""
    app.command("serve", cls=FlagsCommand, rich_help_panel=RUN)(serve)


def serve(
    context: typer.Context,
    config: ConfigOption = None,
    data_dir: DataOption = None,
    run_dir: RunOption = None,
    host: Annotated[str | None, typer.Option(metavar="HOST", help="Where the management API listens: address.")] = None,
    port: Annotated[int | None, typer.Option(help="Where the management API listens: port.")] = None,
    log_level: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="debug, info, warning, error or critical.")
    ] = None,
    lab: Annotated[
        bool, typer.Option("--lab", help="Run an origin on loopback to try proxies with, and let them reach loopback.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only say whether it would start, whatever runs now.")] = False,
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
    from config.settings.initial_environment import wipe
    from config.settings.loading import load
    from config.settings.sources import Origins

    def check_or_serve() -> None:
        wipe(ENV_PREFIX)
        if check:
            _preflight(settings_of(config, overrides))
            return
        with _zygote(context.obj) as zygote:
            settings = _open_for(lab, settings_of(config, overrides))
            for secret in ("ADMIN_PASSWORD", "API_KEY"):
                os.environ.pop(f"{ENV_PREFIX}{secret}", None)  # the actors inherit the environment

            def reload() -> Settings:
                return _open_for(lab, load(config, overrides))

            def origins() -> Origins:
                return Origins.read(config, overrides)

            raise typer.Exit(run(settings, reload, origins, zygote, lab))

    guarded(Output(), check_or_serve)


def _open_for(lab: bool, settings: Settings) -> Settings:
    """In a lab the egress guard is open for loopback, beside what the configuration allows; nothing of it is stored."""
    if not lab:
        return settings
    from actors.lab import RANGES

    proxy = settings.proxy
    return settings.model_copy(
        update={"proxy": proxy.model_copy(update={"egress_allow": (*proxy.egress_allow, *RANGES)})}
    )


def _zygote(started: ZygoteProcess | None) -> AbstractContextManager[ZygoteProcess]:
    """The one that is started, which `supervisor.py` ends. If that failed, another one is tried."""
    from actors.supervision.processes.first_zygote import first_zygote

    return first_zygote() if started is None else nullcontext(started)


def run(
    settings: Settings,
    reload: Callable[[], Settings],
    origins: Callable[[], Origins],
    zygote: ZygoteProcess,
    lab: bool = False,
) -> int:
    """Everything from the settings to the end of the product; returns its exit status."""
    from actors.apart import apart
    from actors.process import set_up_logging
    from actors.supervision.listeners.descriptor_store import HANDED_OVER
    from actors.supervision.listeners.socket_activation import InheritedListeners, from_manager
    from actors.supervision.supervisor import RuntimeResources, SupervisorProcess
    from actors.supervision.upgrade.handover import receive_handover
    from config.files.paths import PathError, default_run_dir, open_run_dir
    from config.settings.settings import ConfigError

    handover = receive_handover(os.environ)
    left = [(HANDED_OVER, each) for each in handover.sockets()]
    inherited = InheritedListeners([*left, *from_manager(os.environ)])
    set_up_logging(settings.logging.level, settings.logging.format, settings.logging.output)
    data = _open_data(settings)
    run_dir = translated(PathError, lambda: open_run_dir(settings.run_dir or default_run_dir(data.path, make=True)))
    locks = (_locked(data.lock, "data directory", handover), _locked(run_dir.lock, "run directory", handover))
    handover.release_locks(but=locks)
    finish_restore(data)
    bring_up_to_date(data)
    stored, desired, objects, is_first = translated(OSError, lambda: apart(lambda: _read_stored(data)))
    base, settings = settings, _effective(settings, stored)
    set_up_logging(settings.logging.level, settings.logging.format, settings.logging.output)
    translated(ConfigError, settings.server.tls.check_certificate)
    api_socket = _listen(settings, stored, inherited)
    given = settings.admin_password.get_secret_value() if settings.admin_password else None
    password = translated(OSError, lambda: apart(lambda: _make_administrator(data, given))) if is_first else None
    _show_password(data, password)
    origin = _lab_socket(inherited) if lab else None
    resources = RuntimeResources(data, run_dir, locks, api_socket, inherited, handover.predecessors, origin)

    def greet() -> None:
        _greet(settings, data, api_socket, origin)

    process = SupervisorProcess(base, resources, reload, greet, stored=stored, origins=origins, zygote=zygote)
    return process.run(desired, objects)


def _read_stored(data: DataDir) -> tuple[Stored, tuple[ProxySpec, ...], tuple[FleetObject, ...], bool]:
    """The settings changed through the API, the desired state, and whether there is no user yet: the first start."""
    from actors.garbage import without_collections
    from api.operator.desired_state import read_desired_objects, read_desired_proxies
    from api.security import users
    from api.services.settings import read_stored
    from api.store import StoreError, open_store

    def read() -> tuple[Stored, tuple[ProxySpec, ...], tuple[FleetObject, ...], bool]:
        with without_collections(), closing(open_store(data)) as store:
            desired, objects = read_desired_proxies(store, data), read_desired_objects(store, data)
            return read_stored(store), desired, objects, not store.find(users.COLLECTION)

    return translated(StoreError, read)


def _make_administrator(data: DataDir, given: str | None) -> str | None:
    """Make the first user; the password, if it was made up."""
    from api.operator.bootstrap import ensure_administrator
    from api.store import StoreError, open_store

    try:
        with closing(translated(StoreError, lambda: open_store(data))) as store:
            return translated(StoreError, lambda: ensure_administrator(store, data, given))
    except ValueError as error:  # the password is their only input
        raise CommandError(f"admin_password: {error}") from error


def _show_password(data: DataDir, password: str | None) -> None:
    """Print the first administrator's password once, and only to a terminal: under systemd, in a container or behind a
    `>` the standard output is kept as a log. There only the file has it."""
    if password is None:
        return
    where = f"  password: {password}\n  also in:  " if sys.stdout.isatty() else "  password in "
    sys.stdout.write(f"The administrator `admin` was created.\n{where}{data.initial_password}\n")
    sys.stdout.flush()


def _lab_socket(inherited: InheritedListeners) -> socket.socket:
    """Where the origin of the lab listens: at its usual port, also after an upgrade, or at any if that is in use."""
    import logging

    from actors.lab import PORT, listening_address
    from actors.supervision.listeners.bind import ListenError

    try:
        found = inherited.listen("127.0.0.1", PORT)
    except ListenError:
        found = socket.create_server(("127.0.0.1", 0))
    logging.getLogger(__name__).warning(
        "lab: the egress guard is open for loopback, and an origin to try proxies with listens at %s",
        listening_address(found),
    )
    return found


def _greet(settings: Settings, data: DataDir, api_socket: socket.socket, origin: socket.socket | None) -> None:
    """Where the dashboard and the API are, how to sign in, what to try next."""
    from config.net.host_names import from_this_machine

    host, port = from_this_machine(settings.server.host), api_socket.getsockname()[1]
    scheme = "https" if settings.server.tls.enabled else "http"
    base = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    known = f"the password in {data.initial_password}" if data.initial_password.exists() else "your password"
    lab = "" if origin is None else f"  lab       {_lab_line(origin)}\n"
    sys.stdout.write(f"""
Proxyfleet {VERSION} is running.
  page      {base}/ui/
  API       {base}/api/v1
  sign in   {_command()} login --url {base}
            as `admin` with {known}
  try       curl -u admin {base}/api/v1/health
  read      {base}/api/v1/docs
{lab}  end       Ctrl-C

""")
    sys.stdout.flush()


def _lab_line(origin: socket.socket) -> str:
    from actors.lab import listening_address

    return f"{listening_address(origin)} is an origin to try proxies with; the egress guard is open for loopback"


def _command() -> str:
    """How the command is called here: in a checkout it is not on the path."""
    return "proxyfleet" if shutil.which("proxyfleet") else sys.argv[0]


def _open_data(settings: Settings) -> DataDir:
    from config.files.paths import PathError, default_data_dir, open_data_dir

    folder = settings.data_dir or default_data_dir()
    refuse_newer(folder)  # before the directory gets its mode and its lock file: nothing in it is touched
    return translated(PathError, lambda: open_data_dir(folder))


def _locked(file: Path, what: str, handover: Handover) -> int:
    held = handover.lock_of(file)
    return take_lock(file, what) if held is None else held


def _listen(settings: Settings, stored: Stored, inherited: InheritedListeners) -> socket.socket:
    from actors.supervision.listeners.bind import ListenError

    try:
        return inherited.listen(settings.server.host, settings.server.port)
    except ListenError as error:
        through_api = bool({"host", "port"} & stored.get("server", {}).keys())
        hint = "; it was set through the API, and `proxyfleet reset-settings` forgets that" if through_api else ""
        otherwise = f"Another one: --{error.field}, or server.{error.field} in the configuration"
        raise CommandError(f"server.{error.field}: {error.error}{hint}", otherwise) from error


def _preflight(settings: Settings) -> None:
    from actors.supervision.upgrade.preflight import WOULD_START
    from api.operator.preflight import WouldNotStart, check_start
    from config.files.paths import DataDir, default_data_dir

    data = DataDir(settings.data_dir or default_data_dir())
    translated(WouldNotStart, lambda: check_start(settings, data))
    Output().message(WOULD_START)


def _effective(settings: Settings, stored: Stored) -> Settings:
    from actors.supervision.effective_settings import with_overrides
    from config.settings.runtime import InvalidOverride

    try:
        return with_overrides(settings, stored)
    except InvalidOverride as error:
        hint = "What was set through the API is forgotten by: proxyfleet reset-settings"
        raise CommandError(f"{error}, as set through the API", hint) from error


def _given(options: dict[str, Any]) -> dict[str, Any]:
    """The options that the command line has."""
    return {name: value for name, value in options.items() if value is not None and value != {}}
