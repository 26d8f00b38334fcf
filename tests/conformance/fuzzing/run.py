"""Fuzz targets for a bounded time, guided by coverage: what `scripts/fuzz` runs.

Each target runs in a process of its own, since libFuzzer ends the process that it runs in. It begins with the corpus
of the repository and the seeds; what it finds goes to a folder of its own, and with `--keep` the smallest set of
inputs with the same coverage replaces the corpus.
"""

from __future__ import annotations

import argparse
import hashlib
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.conformance.fuzzing.corpus import CORPUS, FOUND, NAMES
from tests.kit.folders import ROOT

_WORDS = Path(__file__).parent / "http.dict"
_LENGTH = "-max_len=4096"
_LIMITS = [_LENGTH, "-timeout=20", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"]
_INSIDE = "inside"
"""The first argument of the process that fuzzes."""


def main() -> int:
    """0 when nothing was found, else 1."""
    if sys.argv[1:2] == [_INSIDE]:
        _fuzz(sys.argv[2], sys.argv[3:])
    arguments = _arguments()
    arguments.crashes.mkdir(parents=True, exist_ok=True)
    found = [name for name in arguments.targets or NAMES if not _run(name, arguments)]
    for name in found:
        print(f"{name}: FAILED; the inputs are in {arguments.crashes}", flush=True)
    return 1 if found else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description="Fuzz the protocols for a bounded time.")
    parser.add_argument("targets", nargs="*", metavar="target", help=f"of {', '.join(NAMES)}; all when none is given")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--crashes", type=Path, default=ROOT / "data" / "fuzz", help="where failing inputs are put")
    parser.add_argument("--keep", action="store_true", help="replace the corpus by the smallest with all that was seen")
    arguments = parser.parse_args()
    unknown = set(arguments.targets) - set(NAMES)
    if unknown:
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    return arguments


def _run(name: str, arguments: argparse.Namespace) -> bool:
    """Fuzz one target; whether all went well."""
    with tempfile.TemporaryDirectory(prefix="pf-fuzz-") as folder:
        work, seeds = Path(folder, "work"), Path(folder, "seeds")
        work.mkdir()
        seeds.mkdir()
        (CORPUS / name).mkdir(parents=True, exist_ok=True)
        _write_seeds(name, seeds)
        print(f"{name}: {arguments.seconds} s", flush=True)
        limits = [f"-max_total_time={arguments.seconds}", *_LIMITS]
        prefix = f"-artifact_prefix={arguments.crashes.resolve()}/{name}-"
        words = [f"-dict={_WORDS}"] if name.startswith("http_") else []
        good = _libfuzzer(name, [*limits, prefix, *words, str(work), str(CORPUS / name), str(seeds)])
        if good and arguments.keep:
            _keep(name, [work, seeds], Path(folder, "kept"))
        return good


def _libfuzzer(name: str, options: list[str]) -> bool:
    """Run libFuzzer with a target in a process of its own; whether it ended well."""
    command = [sys.executable, "-m", "tests.conformance.fuzzing.run", _INSIDE, name, *options]
    return subprocess.run(command, cwd=ROOT).returncode == 0


def _write_seeds(name: str, folder: Path) -> None:
    from tests.conformance.fuzzing.seeds import SEEDS

    for data in SEEDS[name]:
        (folder / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)


def _keep(name: str, folders: list[Path], kept: Path) -> None:
    """Put the smallest set of inputs that reaches all that these and the corpus reach in place of the corpus."""
    kept.mkdir()
    corpus = CORPUS / name
    if not _libfuzzer(name, ["-merge=1", _LENGTH, "-verbosity=0", str(kept), str(corpus), *map(str, folders)]):
        return
    assert any(kept.iterdir()), "a corpus that covers nothing is no corpus"
    for old in corpus.iterdir():
        if not old.name.startswith(FOUND):
            old.unlink()
    for new in kept.iterdir():
        (corpus / new.name[:16]).write_bytes(new.read_bytes())
    print(f"{name}: {len(list(corpus.iterdir()))} inputs kept", flush=True)


def _fuzz(name: str, options: list[str]) -> None:
    """Never comes back."""
    import atheris

    with atheris.instrument_imports(include=["actors"]):
        from tests.conformance.fuzzing.targets import TARGETS
    # What stands first is the command with which libFuzzer starts itself again, through a shell, to merge.
    again = shlex.join([sys.executable, "-m", "tests.conformance.fuzzing.run", _INSIDE, name])
    atheris.Setup([again, *options], TARGETS[name])
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
