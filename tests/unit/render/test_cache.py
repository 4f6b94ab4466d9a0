"""Encoding by words gives the very ids of encoding in one piece, or is not done; the cache keeps to its bytes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from openclaw_rl.render.cache import SizedCache, WordEncoder, owned_by
from openclaw_rl.render.vocabulary import Vocabulary


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model / "tokenizer.json"))


class Counting:
    """A tokenizer's batch call that counts the texts it is given."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.num_texts = 0

    def __call__(self, texts: Sequence[str]) -> list[list[int]]:
        self.num_texts += len(texts)
        return [e.ids for e in self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


_WORDS = st.sampled_from(
    ["the", "The", "dog's", "I'm", "don't", "x1", "42", "naïve", "你好", "a", "²", "_x", "e\u0301", "HTTP"]
)
_GAPS = st.sampled_from(
    [" ", "  ", "\n", " \n ", "\t", ", ", " - ", "", "'", " '", "(", ") ", "...", "_", "/", "\u00a0"]
)
_TEXTS = st.lists(st.tuples(_WORDS, _GAPS), max_size=30).map(lambda pairs: "".join(w + g for w, g in pairs)) | st.text()


def test_any_text_has_the_ids_of_the_tokenizer(tokenizer: Tokenizer) -> None:
    encoder = WordEncoder(Counting(tokenizer), ())
    assert encoder.can_cut

    @given(text=_TEXTS)
    def same(text: str) -> None:
        assert encoder.encode(text) == tokenizer.encode(text, add_special_tokens=False).ids

    same()


def test_the_embedded_model_is_cut(model: Path) -> None:
    vocabulary = Vocabulary.from_folder(model)
    assert vocabulary.encodes_by_words


def test_words_are_learnt_once(tokenizer: Tokenizer) -> None:
    counting = Counting(tokenizer)
    encoder = WordEncoder(counting, ())
    first = encoder.encode("zebra crossings please zebra")
    learnt = counting.num_texts
    assert encoder.encode("zebra crossings please zebra") == first
    assert counting.num_texts == learnt


@pytest.mark.parametrize(
    ("encode", "added"),
    [
        pytest.param(lambda text: [len(text)], (), id="a tokenizer that joins words"),
        pytest.param(lambda text: [ord(c) for c in text], ("by the way",), id="an added token across words"),
    ],
)
def test_a_tokenizer_that_cannot_be_cut_is_not_cut(encode: object, added: tuple[str, ...]) -> None:
    encoder = WordEncoder(lambda texts: [encode(text) for text in texts], added)  # type: ignore[operator]
    assert not encoder.can_cut
    assert encoder.encode("by the way") == encode("by the way")  # type: ignore[operator]


def test_cuts_lie_before_words_and_behind_them() -> None:
    seen: list[str] = []

    def encode(texts: Sequence[str]) -> list[list[int]]:
        seen.extend(texts)
        return [[ord(c) for c in text] for text in texts]

    encoder = WordEncoder(encode, ())
    seen.clear()
    encoder.encode("qq ww 1 ee, rr\ntt  yy")
    assert sorted(seen) == [" ee", " rr\ntt  yy", " ww 1", "qq"]  # the comma is known from the probes


def test_drops_what_was_used_longest_ago() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 4)
    cache.put("b", 2, 4)
    assert cache.get("a") == 1
    cache.put("c", 3, 4)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)


def test_one_value_may_push_out_several() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    for key in "abc":
        cache.put(key, 0, 3)
    cache.put("d", 1, 9)
    assert [cache.get(key) for key in "abcd"] == [None, None, None, 1]


def test_replacing_a_value_frees_its_bytes() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 6)
    cache.put("a", 2, 6)
    cache.put("b", 3, 4)
    assert (cache.get("a"), cache.get("b")) == (2, 3)


def test_what_exceeds_the_whole_cache_is_not_kept() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    cache.put("a", 1, 6)
    cache.put("b", 2, 11)
    assert (cache.get("a"), cache.get("b")) == (1, None)


def test_each_owner_finds_what_is_its_own() -> None:
    cache: SizedCache[str, int] = SizedCache(10)
    with owned_by("ann"):
        cache.put("a", 1, 4)
        with owned_by("bob"):
            assert cache.get("a") is None
            cache.put("a", 2, 4)
        assert cache.get("a") == 1
    assert cache.get("a") is None
    cache.put("b", 3, 4)
    with owned_by("bob"):
        assert cache.get("a") is None, "one bound for all: what was used longest ago went"
    with owned_by("ann"):
        assert cache.get("a") == 1
