"""A prompt that cannot fit is refused before it is tokenised, and one that fits never is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, normalizers, pre_tokenizers

from openclaw_rl.errors import PromptTooLong
from openclaw_rl.protocols import Renderer
from openclaw_rl.render import load_renderer
from openclaw_rl.render.allowance import Abandoned, allowing
from openclaw_rl.render.chatml import ChatmlRenderer
from openclaw_rl.render.vocabulary import Vocabulary
from openclaw_rl.types import Message, Tool
from tests.unit.render.tiny import CHATML, HERMES, byte_level, sentence_piece, write_folder

TOOL = Tool(name="weather", description="Tells it.", parameters={"type": "object", "properties": {}})

WORDS = st.sampled_from(
    [" ", "\n", "=", "-", "#", "the weather ", "\t", "e\u0301", "é", "▁", "ab", "你好", "1,", "<|im_end|>"]
)
LONG = st.tuples(WORDS | st.text(st.characters(exclude_categories=["Cs"]), max_size=3), st.integers(1, 300))
TEXTS = st.lists(LONG, max_size=8).map(lambda runs: "".join(text * count for text, count in runs))


def composing() -> Tokenizer:
    return byte_level()


def plain() -> Tokenizer:
    tokenizer = byte_level()
    tokenizer.normalizer = None
    return tokenizer


MADE: list[Callable[[], Tokenizer]] = [composing, plain, sentence_piece]


@pytest.fixture(scope="module", params=["embedded", *(make.__name__ for make in MADE)])
def vocabulary(
    request: pytest.FixtureRequest, embedded_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Vocabulary:
    if request.param == "embedded":
        return Vocabulary.from_folder(embedded_folder)
    tokenizer = next(make for make in MADE if make.__name__ == request.param)()
    return Vocabulary(tokenizer.to_str().encode())


@given(text=TEXTS)
def test_no_text_has_fewer_tokens_than_foreseen(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.fewest_tokens(text) <= len(vocabulary.encode(text))


def test_most_texts_are_foreseen_well(vocabulary: Vocabulary) -> None:
    assert vocabulary.fewest_tokens("the weather again " * 1000) > 400
    assert vocabulary.fewest_tokens("3,1,4,1,5,9," * 1000) > 100


def test_the_embedded_model_knows_digits_from_blanks(embedded_folder: Path) -> None:
    vocabulary = Vocabulary.from_folder(embedded_folder)
    assert vocabulary.fewest_tokens("7" * 1000) > 990
    assert 10 <= vocabulary.fewest_tokens(" " * 1000) < 20
    assert vocabulary.fewest_tokens("你好" * 1000) > 500


@pytest.mark.parametrize(
    "change",
    [
        lambda t: setattr(t, "normalizer", normalizers.Strip()),
        lambda t: setattr(t, "normalizer", normalizers.Replace("  ", " ")),
        lambda t: setattr(t, "normalizer", normalizers.StripAccents()),
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Whitespace()),
        lambda t: setattr(t, "pre_tokenizer", pre_tokenizers.Split(" ", "removed")),
    ],
)
@pytest.mark.parametrize("make", MADE)
def test_a_tokenizer_that_may_lose_text_foresees_nothing(
    make: Callable[[], Tokenizer], change: Callable[[Tokenizer], None]
) -> None:
    tokenizer = make()
    change(tokenizer)
    assert Vocabulary(tokenizer.to_str().encode()).fewest_tokens("the weather " * 1000) == 0


@pytest.fixture(scope="module", params=["embedded", "qwen3", "template", "pieces"])
def renderer(
    request: pytest.FixtureRequest, embedded: ChatmlRenderer, tmp_path_factory: pytest.TempPathFactory
) -> Renderer:
    folder = tmp_path_factory.mktemp(request.param)
    match request.param:
        case "embedded":
            return embedded
        case "qwen3":
            write_folder(folder, byte_level(), HERMES + "{#- </think> -#}", model_type="qwen3", eos_token_id=2)
        case "template":
            write_folder(folder, byte_level(), CHATML.replace("message.content", "message.content | trim"))
        case _:
            write_folder(folder, sentence_piece(), "{{ bos_token }}" + CHATML.replace("<|im_start|>", "<s>"))
    return load_renderer(folder, "mine")


@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_a_prompt_that_just_fits_is_rendered(renderer: Renderer, texts: list[str]) -> None:
    messages = [Message(role="user" if i % 2 == 0 else "assistant", content=text) for i, text in enumerate(texts)]
    ids = renderer.render(messages, [TOOL], {})
    with allowing(len(ids)) as allowance:
        assert renderer.render(messages, [TOOL], {}) == ids
    assert allowance.num_tokens <= len(ids)


def test_a_prompt_that_does_not_fit_is_not_rendered(renderer: Renderer) -> None:
    messages = [Message(role="user", content="the weather, again and again; " * 30) for _ in range(4)]
    ids = renderer.render(messages, [], {})
    with allowing(len(ids) // 2), pytest.raises(PromptTooLong):
        renderer.render(messages, [], {})


def test_an_answer_that_cannot_be_spliced_in_counts_once(renderer: Renderer) -> None:
    messages = [Message(role="user", content="again"), Message(role="assistant", content="sunny " * 50)]
    messages.append(Message(role="user", content="the weather " * 200))
    ids = renderer.render(messages, [], {1: [5, 6]})
    with allowing(len(ids)):
        assert renderer.render(messages, [], {1: [5, 6]}) == ids


def test_stops_within_a_text(embedded: ChatmlRenderer) -> None:
    """Blanks could all stand in long tokens, so that only tokenising can tell; it does not go on to the end."""
    text = "a b " * 250_000
    with allowing(40_000, lambda: True) as allowance, pytest.raises(PromptTooLong) as stopped:
        embedded.encode(text)
    assert allowance.num_tokens == 0
    assert 40_000 < stopped.value.num_tokens < 90_000


def test_what_cannot_fit_is_not_tokenised(embedded: ChatmlRenderer) -> None:
    text = "word upon word " * 100_000
    with allowing(8_192), pytest.raises(PromptTooLong) as stopped:
        embedded.encode(text)
    assert stopped.value.num_tokens > 50_000, "known from the whole text, not counted until it was enough"


def test_stops_when_nobody_waits(embedded: ChatmlRenderer) -> None:
    asked = iter([True, True, False])
    with allowing(10**9, lambda: next(asked)), pytest.raises(Abandoned):
        embedded.encode("c d " * 250_000)


def test_pieces_make_the_same_tokens(embedded: ChatmlRenderer, embedded_tokenizer: Tokenizer) -> None:
    text = "Do not go on,  and on (x=1) — naïve 你好 ''quoted'' a.b.c " * 3000
    assert embedded.encode(text) == embedded_tokenizer.encode(text, add_special_tokens=False).ids
