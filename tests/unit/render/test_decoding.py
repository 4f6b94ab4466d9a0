from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, pre_tokenizers

from openclaw_rl.protocols import TextDecoder
from openclaw_rl.render.chatml import ChatmlRenderer
from openclaw_rl.render.decoding import byte_alphabet
from openclaw_rl.render.vocabulary import Vocabulary
from tests.unit.render.tiny import sentence_piece

PIECES = sentence_piece()


def decode_in_steps(decoder: TextDecoder, ids: list[int], sizes: list[int]) -> list[str]:
    texts, at = [], 0
    for size in sizes:
        texts.append(decoder.push(ids[at : at + size]))
        at += size
    return [*texts, decoder.push(ids[at:]), decoder.finish()]


SIZES = st.lists(st.integers(0, 3), max_size=40)


@given(ids=st.lists(st.integers(0, 49_160) | st.integers(17, 300), max_size=60), sizes=SIZES)
def test_embedded_vocabulary(
    embedded: ChatmlRenderer, embedded_tokenizer: Tokenizer, ids: list[int], sizes: list[int]
) -> None:
    expected = embedded_tokenizer.decode(ids, skip_special_tokens=True)
    assert embedded.decode(ids) == expected
    assert "".join(decode_in_steps(embedded.decoder(), ids, sizes)) == expected


@given(text=st.text(alphabet="aé語🐍 \n", max_size=30), sizes=SIZES)
def test_text_comes_back(embedded: ChatmlRenderer, text: str, sizes: list[int]) -> None:
    assert "".join(decode_in_steps(embedded.decoder(), embedded.encode(text), sizes)) == text


UNKNOWN = PIECES.get_vocab_size() + 3
SOME_PIECES = st.sampled_from(PIECES.encode("a ab abé", add_special_tokens=False).ids)


@given(ids=st.lists(SOME_PIECES | st.integers(0, UNKNOWN) | st.integers(220, 258) | st.just(UNKNOWN)), sizes=SIZES)
@example(ids=[*PIECES.encode("a").ids, UNKNOWN, *PIECES.encode("a").ids], sizes=[1, 1, 1])
def test_pieces_with_byte_fallback(ids: list[int], sizes: list[int]) -> None:
    vocabulary = Vocabulary(PIECES.to_str().encode())
    expected = PIECES.decode(ids, skip_special_tokens=True)
    assert vocabulary.decode(ids) == expected
    assert "".join(decode_in_steps(vocabulary.decoder(), ids, sizes)) == expected


def test_a_character_is_held_until_its_last_byte(embedded: ChatmlRenderer) -> None:
    ids = embedded.encode("a🐍")
    decoder = embedded.decoder()
    assert len(ids) > 2
    assert [decoder.push([token]) for token in ids] == ["a", *[""] * (len(ids) - 2), "🐍"]


def test_alphabet_is_the_one_of_the_library() -> None:
    assert set(byte_alphabet()) == set(pre_tokenizers.ByteLevel.alphabet())
    assert sorted(byte_alphabet().values()) == list(range(256))
