"""Environment variables of ours that the command line reads; apart from the settings, whose import takes time.

`wipe` is about the environment and the arguments that this process was started with. What is done to `os.environ`
leaves `/proc/PID/environ` as it was: that file shows the memory where the kernel has put the variables (proc(5)), for
as long as the process lives. So secrets that came as variables are wiped out there; `os.environ` keeps them for those
who read the settings again, and for the next program at an upgrade.
"""

from __future__ import annotations

import os
from pathlib import Path

ENV_PREFIX = "PROXYFLEET_"
"""How all of them begin."""
OPTION_VARIABLES = {"CONFIG", "NEW_PASSWORD", "URL", "API_KEY", "CA_FILE"}
"""Variables of the prefix that are options of commands and no keys of the configuration."""


_START_FIELD, _ARGUMENTS_FIELD = 50 - 3, 48 - 3
"""`env_start` and `arg_start` of proc(5), counted from the field behind the name of the process."""


def wipe(prefix: str) -> None:
    """Overwrite the values of all variables whose names begin so. Raises `OSError` when /proc doesn't show them."""
    environ, start = _memory_of("environ", _START_FIELD)
    offset = 0
    for entry in environ.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name.startswith(os.fsencode(prefix)):
            _move(os.fsdecode(name))
            _overwrite(start + offset + len(name) + 1, 0, len(value))
        offset += len(entry) + 1


def wipe_option(option: str) -> None:
    """Overwrite what the option was given, as `OPTION VALUE` or `OPTION=VALUE`. Raises `OSError` as `wipe` does.

    Any user may read `/proc/PID/cmdline`. `sys.argv` is a copy, which stays.
    """
    arguments, start = _memory_of("cmdline", _ARGUMENTS_FIELD)
    name, offset, is_value = os.fsencode(option), 0, False
    for each in arguments.split(b"\0"):
        kept = 0 if is_value else len(name) + 1 if each.startswith(name + b"=") else len(each)
        _overwrite(start + offset + kept, ord("x"), len(each) - kept)
        is_value = each == name
        offset += len(each) + 1


def _memory_of(file: str, field: int) -> tuple[bytes, int]:
    """What /proc shows of this process, and the address where it is; nothing where that is used for something else."""
    from ctypes import string_at  # as below

    content = Path("/proc/self", file).read_bytes()
    start = int(Path("/proc/self/stat").read_bytes().rpartition(b") ")[2].split()[field])
    return (content, start) if content and string_at(start, len(content)) == content else (b"", start)


def _overwrite(address: int, octet: int, count: int) -> None:
    from ctypes import memset  # most commands wipe nothing

    memset(address, octet, count)


def _move(name: str) -> None:
    """Set it anew, which gives it memory of its own."""
    if name in os.environ:
        os.environ[name] = os.environ[name]
