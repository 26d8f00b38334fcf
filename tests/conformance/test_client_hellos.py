"""ClientHellos as OpenSSL's server reads them: real ones, and thousands that are nearly right (`tls_reference`)."""

from __future__ import annotations

from collections import Counter
from random import Random

from tests.conformance.hello_mutations import mutated
from tests.conformance.tls_reference import UNSUPPORTED, as_ours, check, openssl, ours
from tests.kit.client_hellos import records, samples

CASES = 6_000
"""Some three seconds; each takes OpenSSL's handshake and ours."""


def test_openssl_reads_the_names_of_real_hellos_as_expected() -> None:
    for sample in samples():
        kind, said = openssl(records(sample.message, 700))
        assert said in UNSUPPORTED or (kind, as_ours(said)) == ("name", sample.name), sample.client


def test_openssl_acts_on_the_same_name_and_refuses_the_same() -> None:
    random, outcomes = Random(7), Counter[str]()
    for _ in range(CASES):
        outcomes[check(mutated(random))] += 1
    assert min(outcomes[each] for each in ("name", "refused", "more", "name, refused")) > CASES / 100, outcomes


def test_pieces_don_t_matter_where_a_hello_is_wrong_either() -> None:
    random = Random(8)
    for _ in range(CASES // 10):
        stream = mutated(random)
        cuts = sorted(random.choices(range(len(stream) + 1), k=3))
        pieces = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
        assert repr(ours(pieces)) == repr(ours([stream])), stream.hex()
