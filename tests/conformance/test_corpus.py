"""What the fuzzer has found and kept is tried again, without the fuzzer: nothing that was mended breaks anew."""

from __future__ import annotations

from collections.abc import Iterator

from tests.conformance.fuzzing.corpus import CORPUS, NAMES
from tests.conformance.fuzzing.seeds import SEEDS
from tests.conformance.fuzzing.targets import TARGETS
from tests.kit.tables import table


def test_every_target_has_a_name_seeds_and_a_corpus() -> None:
    assert set(NAMES) == TARGETS.keys() == SEEDS.keys() == {folder.name for folder in CORPUS.iterdir()}
    assert all(SEEDS.values())
    assert all(any((CORPUS / name).iterdir()) for name in NAMES)


def inputs() -> Iterator[tuple[str, str, bytes]]:
    for target in NAMES:
        yield from ((target, file.name, file.read_bytes()) for file in sorted((CORPUS / target).iterdir()))
        yield from ((target, f"seed {number}", seed) for number, seed in enumerate(SEEDS[target]))


@table(("target", "file", "octets"), inputs)
def test_the_corpus_holds(target: str, file: str, octets: bytes) -> None:
    assert file
    TARGETS[target](octets)
