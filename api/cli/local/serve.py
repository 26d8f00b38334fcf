"""`proxyfleet serve`: from the command line to a running product.

It reads the settings, acquires the locks, ensures that there is an administrator, reads the desired state once, binds
the API's socket and starts `actors.supervision.supervisor`. The zygote and the API's process were started before
(`supervisor.py`).

This process becomes the supervisor. What needs the store and its models is done by the API's process.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer

from actors.garbage import without_collections
from actors.process import set_up_logging
from actors.supervision.handover import Handover, receive_handover
from actors.supervision.listeners.bind import ListenError
from actors.supervision.listeners.descriptor_store import HANDED_OVER
from actors.supervision.listeners.socket_activation import InheritedListeners, from_manager
from actors.supervision.processes.zygote_process import FirstProcesses, first_processes
from actors.supervision.supervisor import RuntimeResources, SupervisorProcess
from actors.supervision.upgrade import WOULD_START
from api.cli.errors import CommandError
from api.cli.local.shared import finish_restore, take_lock, translated
from api.cli.terminal import Output
from config import VERSION
from config.files.durable import mark_new, require_own_format
from config.files.paths import DataDir, default_data_dir, default_run_dir, open_data_dir, open_run_dir
from config.net.names import from_this_machine
from config.settings.env import ENV_PREFIX, wipe
from config.settings.loading import Origins, load
from config.settings.runtime import InvalidOverride, Stored, with_overrides
from config.settings.settings import Settings


def check_or_serve(
    config: Path | None, given: dict[str, Any], started: FirstProcesses | None, lab: bool, check: bool
) -> None:
    """Run the product, or only say whether it would start. `given` are the settings of the command line.

    `started` are processes that `supervisor.py` ends; if that failed, others are tried.
    """
    if check:
        wipe(ENV_PREFIX)
        _preflight(config, given)
        return
    with first_processes() if started is None else nullcontext(started) as first:
        with translated():
            settings = _open_for(lab, load(config, given))
        for secret in ("ADMIN_PASSWORD", "API_KEY"):
            os.environ.pop(f"{ENV_PREFIX}{secret}", None)  # the actors inherit the environment

        def reload() -> Settings:
            return _open_for(lab, load(config, given))

        raise typer.Exit(run(settings, reload, lambda: Origins.read(config, given), first, lab))


def _open_for(lab: bool, settings: Settings) -> Settings:
    """In a lab the egress guard is open for loopback, beside what the configuration allows; nothing of it is stored."""
    if not lab:
        return settings
    from actors.lab import RANGES  # and a server of HTTP

    proxy = settings.proxy
    return settings.model_copy(
        update={"proxy": proxy.model_copy(update={"egress_allow": (*proxy.egress_allow, *RANGES)})}
    )


def run(
    settings: Settings, reload: Callable[[], Settings], origins: Callable[[], Origins], first: FirstProcesses, lab: bool
) -> int:
    """Everything from the settings to the end of the product; returns its exit status."""
    handover = receive_handover(os.environ)
    left = [(HANDED_OVER, each) for each in handover.sockets()]
    inherited = InheritedListeners([*left, *from_manager(os.environ)])
    set_up_logging(settings.logging.level, settings.logging.format, settings.logging.output)
    with translated():
        data = _open_data(settings)
        run_dir = open_run_dir(settings.run_dir or default_run_dir(data.path, make=True))
        locks = (_locked(data.lock, "data directory", handover), _locked(run_dir.lock, "run directory", handover))
        handover.release_locks(but=locks)
        finish_restore(data)
        mark_new(data.path)
        first.api.configure(settings.logging.level, settings.logging.format, locks)
        with without_collections():
            stored, desired, objects, is_first = first.api.call("read", str(data.path))
        base, settings = settings, _effective(settings, stored)
        set_up_logging(settings.logging.level, settings.logging.format, settings.logging.output)
        settings.server.tls.check_certificate()
    api_socket = _listen(settings, inherited)
    given = settings.admin_password.get_secret_value() if settings.admin_password else None
    if is_first:
        with translated():
            _show_password(data, first.api.call("make_administrator", given))
    origin = _lab_socket(inherited) if lab else None
    resources = RuntimeResources(data, run_dir, locks, api_socket, inherited, handover.predecessors, origin)

    def greet() -> None:
        _greet(settings, data, api_socket, origin)

    process = SupervisorProcess(base, resources, reload, greet, stored=stored, origins=origins, first=first)
    return process.run(desired, objects)


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
    from actors.lab import PORT, listening_address

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
    host, port = from_this_machine(settings.server.host), api_socket.getsockname()[1]
    scheme = "https" if settings.server.tls.enabled else "http"
    base = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    sys.stdout.write(greeting(base, data, _command(), "" if origin is None else f"  lab       {_lab_line(origin)}\n"))
    sys.stdout.flush()


def greeting(base: str, data: DataDir, command: str, lab: str) -> str:
    """What is printed when the product runs; of an edge node, which refuses sign-ins, how to see how it is.

    `base` is the address of the API, `lab` a line about its origin, or empty.
    """
    if _is_edge(data):
        return f"""
Proxyfleet {VERSION} is running.
  node      an edge of a fleet: dashboard, API and sign-in are those of its full nodes
  status    {command} cluster status
  health    curl {base}/readyz
{lab}  end       Ctrl-C

"""
    known = f"the password in {data.initial_password}" if data.initial_password.exists() else "your password"
    return f"""
Proxyfleet {VERSION} is running.
  page      {base}/ui/
  API       {base}/api/v1
  sign in   {command} login --url {base}
            as `admin` with {known}
  try       curl -u admin {base}/api/v1/health
  read      {base}/api/v1/docs
{lab}  end       Ctrl-C

"""


def _is_edge(data: DataDir) -> bool:
    """By the file of `actors.cluster.identity`, whose reader would load what a supervisor does not need."""
    try:
        return bool(json.loads(data.node.read_bytes())["role"] == "edge")
    except (OSError, ValueError, TypeError, KeyError):
        return False  # it stands alone; and what is wrong with the file the API says


def _lab_line(origin: socket.socket) -> str:
    from actors.lab import listening_address

    return f"{listening_address(origin)} is an origin to try proxies with; the egress guard is open for loopback"


def _command() -> str:
    """How the command is called here: in a checkout it is not on the path."""
    return "proxyfleet" if shutil.which("proxyfleet") else sys.argv[0]


def _open_data(settings: Settings) -> DataDir:
    folder = settings.data_dir or default_data_dir()
    require_own_format(folder)  # before the directory gets its mode and its lock file: nothing in it is touched
    return open_data_dir(folder)


def _locked(file: Path, what: str, handover: Handover) -> int:
    held = handover.lock_of(file)
    return take_lock(file, what) if held is None else held


def _listen(settings: Settings, inherited: InheritedListeners) -> socket.socket:
    try:
        return inherited.listen(settings.server.host, settings.server.port)
    except ListenError as error:
        otherwise = f"Another one: --{error.field}, or server.{error.field} in the configuration"
        raise CommandError(f"server.{error.field}: {error.error}", otherwise) from error


@translated()
def _preflight(config: Path | None, given: dict[str, Any]) -> None:
    from api.operator.start import check_start  # in a process that only checks

    settings = load(config, given)
    check_start(settings, DataDir(settings.data_dir or default_data_dir()))
    Output().message(WOULD_START)


def _effective(settings: Settings, stored: Stored) -> Settings:
    try:
        return with_overrides(settings, stored)
    except InvalidOverride as error:
        hint = "What was set through the API is forgotten by: proxyfleet reset-settings"
        raise CommandError(f"{error}, as set through the API", hint) from error
