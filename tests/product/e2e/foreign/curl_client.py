"""curl through a proxy."""

from __future__ import annotations

from subprocess import CompletedProcess

from tests.product.e2e.foreign.entrances import Entrance
from tests.product.e2e.foreign.programs import run


def options(entrance: Entrance) -> list[str]:
    """The options of every transfer of curl through this proxy; a command line repeats them after `--next`."""
    trusted = ("--cacert", entrance.certificate, "--proxy-cacert", entrance.certificate)
    return ["-sS", "-m", "120", "--noproxy", "", *trusted, "-x", entrance.url]


def curl(entrance: Entrance, *arguments: str, check: bool = True) -> CompletedProcess[str]:
    return run("curl", *options(entrance), *arguments, check=check)
