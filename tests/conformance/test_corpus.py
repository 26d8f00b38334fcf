"""What the fuzzer has found and kept is tried again, without the fuzzer: nothing that was mended breaks anew."""

from __future__ import annotations

import pytest

from tests.conformance.fuzzing.corpus import CORPUS, NAMES
from tests.conformance.fuzzing.seeds import SEEDS
from tests.conformance.fuzzing.targets import TARGETS


def test_every_target_has_a_name_seeds_and_a_corpus() -> None:
    assert set(NAMES) == TARGETS.keys() == SEEDS.keys() == {folder.name for folder in CORPUS.iterdir()}
    assert all(SEEDS.values())
    assert all(any((CORPUS / name).iterdir()) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_the_corpus_holds(name: str) -> None:
    inputs = {file.name: file.read_bytes() for file in (CORPUS / name).iterdir()}
    inputs |= {f"seed {number}": seed for number, seed in enumerate(SEEDS[name])}
    failed = []
    for what, octets in inputs.items():
        try:
            TARGETS[name](octets)
        except Exception as error:  # noqa: BLE001 - each exception of a target is a finding, and all of them are listed
            failed.append(f"{what}: {octets!r}: {error!r}"[:1000])
    assert not failed, "\n".join(failed)
