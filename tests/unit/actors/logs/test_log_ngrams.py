"""The n-gram filter of a block: never a false negative, seldom a false positive."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from actors.logs.columns import build_filter, may_contain, ngrams_of

TEXTS = st.lists(st.binary(max_size=40).map(lambda text: text.replace(b"\n", b" ").lower()), max_size=30)


@given(TEXTS, st.data())
def test_no_part_of_a_text_is_ever_missed(texts: list[bytes], data: st.DataObject) -> None:
    filter_bits = build_filter(b"\n".join(texts))
    for text in texts:
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, len(text)))
        assert may_contain(filter_bits, [ngrams_of(text[start:end])])
        assert may_contain(filter_bits, [ngrams_of(b"\n" + text + b"\n")])


def test_nearly_all_words_that_are_not_there_are_known_not_to_be() -> None:
    dice = random.Random(1)

    def word(length: int) -> bytes:
        return bytes(dice.choices(b"abcdefghijklmnopqrstuvwxyz0123456789", k=length))

    filter_bits = build_filter(b"\n".join(word(40) for _ in range(1000)))
    false_positives = sum(may_contain(filter_bits, [ngrams_of(word(8))]) for _ in range(2000))
    assert false_positives < 20


def test_a_word_of_less_than_four_bytes_may_be_anywhere() -> None:
    assert may_contain(build_filter(b""), [ngrams_of(b"abc"), ngrams_of(b"")])
    assert not may_contain(build_filter(b""), [ngrams_of(b"abcd")])


def test_a_filter_is_as_large_as_its_texts_need() -> None:
    assert len(build_filter(b"few")) == 128
    assert len(build_filter(random.Random(2).randbytes(500_000))) == 32_768
