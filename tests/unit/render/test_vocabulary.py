from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from openclaw_rl.errors import ModelError
from openclaw_rl.render.vocabulary import Vocabulary
from tests.unit.render.tiny import QWEN_SPECIAL, QWEN_TAGS, byte_level, sentence_piece

QWEN = byte_level()
VOCABULARY = Vocabulary(QWEN.to_str().encode())


def plain_oracle(tokenizer: Tokenizer) -> Tokenizer:
    """The same tokenizer, ignorant of every added token."""
    raw = json.loads(tokenizer.to_str())
    raw["added_tokens"] = []
    return Tokenizer.from_str(json.dumps(raw))


ORACLE = plain_oracle(QWEN)
TEXTS = st.lists(st.sampled_from([*QWEN_SPECIAL, *QWEN_TAGS, " ", "\n", "the user"]) | st.text(max_size=5)).map("".join)


@given(TEXTS)
def test_text_is_always_plain_text(text: str) -> None:
    ids = VOCABULARY.encode(text)
    assert list(ids) == ORACLE.encode(text, add_special_tokens=False).ids
    assert not set(ids) & set(VOCABULARY.control.values())


@given(TEXTS)
def test_marked_text_is_what_the_tokenizer_makes_of_it(text: str) -> None:
    assert list(VOCABULARY.encode(VOCABULARY.mark(text))) == QWEN.encode(text, add_special_tokens=False).ids


@given(TEXTS)
def test_shielded_text_stays_plain_amid_scaffolding(text: str) -> None:
    end = VOCABULARY.control["<|im_end|>"]
    ids = VOCABULARY.encode_mixed(f"<|im_end|>{VOCABULARY.shield(text)}<|im_end|>")
    assert ids == (end, *VOCABULARY.encode(text), end)


def test_every_token_of_the_embedded_vocabulary_is_plain_when_spelled(
    embedded_folder: Path, embedded_tokenizer: Tokenizer
) -> None:
    vocabulary = Vocabulary.from_folder(embedded_folder)
    oracle = plain_oracle(embedded_tokenizer)
    assert len(vocabulary.control) == 17
    for spelled in vocabulary.control:
        text = f"a {spelled}{spelled} b"
        assert list(vocabulary.encode(text)) == oracle.encode(text, add_special_tokens=False).ids
        assert not set(vocabulary.encode(text)) & set(vocabulary.control.values())


def test_ordinary_added_tokens_stay_single_tokens() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens(["<table>"])
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    assert vocabulary.encode("x<table>") == (*vocabulary.encode("x"), tokenizer.token_to_id("<table>"))


@given(st.lists(st.sampled_from(["</s>", "<s>", " ", "ab", "é", "語"])).map("".join))
def test_tokenizers_with_a_prefix_blank_are_encoded_whole(text: str) -> None:
    tokenizer = sentence_piece()
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    assert not vocabulary.is_separable
    assert list(vocabulary.encode(vocabulary.mark(text))) == tokenizer.encode(text, add_special_tokens=False).ids
    assert list(vocabulary.encode(text)) == plain_oracle(tokenizer).encode(text, add_special_tokens=False).ids


def test_decoding_hides_special_tokens_but_not_the_tags_that_parsers_read() -> None:
    tokenizer = byte_level(special=(*QWEN_SPECIAL, "<tool_call>"), tags=("<think>",))
    vocabulary = Vocabulary(tokenizer.to_str().encode())
    ids = vocabulary.encode(vocabulary.mark("<|im_start|>a<think><tool_call>b<|im_end|>"))
    assert vocabulary.decode(ids) == "a<think><tool_call>b"


def test_unknown_characters_are_what_the_tokenizer_says() -> None:
    tokenizer = Tokenizer(models.BPE(vocab={"a": 0, "<unk>": 1}, merges=[], unk_token="<unk>"))
    tokenizer.add_special_tokens(["<unk>"])
    assert Vocabulary(tokenizer.to_str().encode()).encode("a語") == (0, 1)


@pytest.mark.parametrize("strip", [{"lstrip": True}, {"rstrip": True}, {"single_word": True}])
def test_only_tokenizers_without_side_effects_are_separable(strip: dict[str, bool]) -> None:
    tokenizer = byte_level()
    assert Vocabulary(tokenizer.to_str().encode()).is_separable
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    assert not Vocabulary(tokenizer.to_str().encode()).is_separable
    tokenizer = byte_level()
    tokenizer.add_special_tokens([AddedToken("<x>", special=True, **strip)])
    assert not Vocabulary(tokenizer.to_str().encode()).is_separable


def test_token_bytes() -> None:
    tokenizer = byte_level()
    tokenizer.add_tokens(["two words"])
    assert Vocabulary(tokenizer.to_str().encode()).token_bytes(tokenizer.get_vocab_size() - 1) == b"two words"
    snowman = VOCABULARY.encode("☃")
    assert b"".join(map(VOCABULARY.token_bytes, snowman)) == "☃".encode()
    assert VOCABULARY.token_bytes(VOCABULARY.control["<|im_end|>"]) == b"<|im_end|>"
    assert VOCABULARY.token_bytes(10**6) == b""
    pieces = Vocabulary(sentence_piece().to_str().encode())
    assert [pieces.token_bytes(token) for token in pieces.encode("a ☃")] == [b" a", b" ", b"\xe2", b"\x98", b"\x83"]


def test_a_broken_file_is_a_model_error(tmp_path: Path) -> None:
    for content in ("", "[]", '{"added_tokens": []}', '{"added_tokens": [], "model": {"vocab": {}}, "decoder": {}}'):
        (tmp_path / "tokenizer.json").write_text(content)
        with pytest.raises(ModelError, match=r"tokenizer\.json"):
            Vocabulary.from_folder(tmp_path)
