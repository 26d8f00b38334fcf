"""What sessions and readers make of many inputs, to be compared between compiled modules and their sources.

`python -m tests.conformance.traces [--pure] [--mutations N]` prints a line for each input: its target, its octets in
hexadecimal, and the SHA-256 of the trace. `--pure` reads modules from their sources though compiled ones lie beside
them. `--show TARGET HEX` prints one trace in full.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import sys
from collections.abc import Iterator
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, SourceFileLoader

from tests.conformance.fuzzing.corpus import CORPUS, NAMES
from tests.kit.folders import ROOT

MUTATIONS = 1
"""Of each input of the corpus and each seed."""


def read_sources_only() -> None:
    """Compiled modules of the product are not found from now on."""

    def finder(path: str) -> FileFinder:
        if not path.startswith((f"{ROOT}/actors", f"{ROOT}/config")):
            raise ImportError
        return FileFinder(path, (SourceFileLoader, SOURCE_SUFFIXES))

    sys.path_hooks.insert(0, finder)


def inputs(name: str, mutations: int) -> Iterator[bytes]:
    """Those of the repository, and so many mutations of each, the same ones each time."""
    from tests.conformance.fuzzing.seeds import SEEDS

    known = [file.read_bytes() for file in sorted((CORPUS / name).iterdir())] + SEEDS[name]
    dice = random.Random(name)
    for each in known:
        yield each
        for _ in range(mutations):
            yield mutated(each, known, dice)


def mutated(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """One to four changes: an octet or a stretch is replaced, doubled, left out, or taken from another input."""
    for _ in range(dice.randint(1, 4)):
        start = dice.randint(0, len(data))
        end = min(len(data), start + dice.choice((0, 1, 1, 2, 8, 40)))
        other = dice.choice(others)
        at = dice.randint(0, len(other))
        middle = dice.choice((dice.randbytes(1), data[start:end] * 2, b"", other[at : at + 30], b"\r\n", b"\0"))
        data = data[:start] + middle + data[end:]
    return data


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--pure", action="store_true")
    parser.add_argument("--mutations", type=int, default=MUTATIONS)
    parser.add_argument("--show", nargs=2, metavar=("TARGET", "HEX"))
    given = parser.parse_args()
    if given.pure:
        read_sources_only()
    from actors.compiled import runs_compiled
    from tests.conformance.traced import trace

    assert not (given.pure and runs_compiled())
    if given.show:
        print("\n".join(trace(given.show[0], bytes.fromhex(given.show[1]))))
        return
    for name in NAMES:
        for data in inputs(name, given.mutations):
            digest = hashlib.sha256("\n".join(trace(name, data)).encode()).hexdigest()
            print(name, data.hex(), digest)


if __name__ == "__main__":
    main()
