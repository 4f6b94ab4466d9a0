"""What a person sees of a reply: words, sentences, meaning."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.detectors.text import content_words, sentences, visible, words


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("<|im_start|>assistant<|im_end|>", "assistant"),
        ("<|im_end|><|endoftext|></s>", ""),
        ("<think>hm</think> Yes.", "Yes."),
        ("<think>never closed", ""),
        ("\u200b\u200d\ufeff", ""),
        ("a < b | c > d", "a < b | c > d"),
    ],
)
def test_visible(text: str, seen: str) -> None:
    assert visible(text) == seen


def test_words() -> None:
    assert words("It's 3.5 kg, isn’t it? (well-known) — 10:30!") == (
        *("it's", "3.5", "kg", "isn't", "it", "well-known", "10:30"),
    )
    assert words("** _ … !") == ()
    assert len(words("你好 world")) == 3


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The sky is blue.", 1),
        ("The sky is blue", 1),
        ("It is blue. It is high.", 2),
        ("Dr. Smith met Mrs. Jones, e.g. in the U.S. on Monday.", 1),
        ("Use fruit, e.g. Apples. Eat them.", 2),
        ("J. R. Brown wrote it.", 1),
        ("It costs 3.50 dollars. Fine.", 2),
        ("Really?! Yes!", 2),
        ("Well... it depends.", 1),
        ("He said “Stop.” Then he left.", 2),
        ("Visit example.com today.", 1),
        ("1. Wash it.\n2. Cut it.", 2),
        ("Do this: 1. Wash it. 2. Cut it.", 2),
        ("A title\n\nIt is blue.", 2),
        ("It is blue\nand it is high.", 1),
        ("- one\n- two\n- three", 3),
        ("天空是蓝色的。因为光。", 2),
        ("```\na. b. c.\n```\nDone.", 1),
        ("Title\n~~~~~~~\nIt is. It was.", 1),
        ("```x ``\nIt is. It was.\n```\nDone.", 1),
        ("```x``` shows gravity.\n- one\n- second", 3),
        ("~~~x~~~ shows gravity.\nIt does.", 2),
        ("```x y\na. b.\n```\nDone.", 1),
        ("Wait...) and see.", 1),
        ("He lives in the a.b.c.d. He left.", 1),
        ("...", 0),
        ("", 0),
        ("<|im_end|>", 0),
    ],
)
def test_sentences(text: str, count: int) -> None:
    assert len(sentences(text)) == count, sentences(text)


@pytest.mark.parametrize(
    ("text", "count"), [("1. " * 60_000, 1), ("It is so. " * 60_000, 60_000), ("." * 60_000 + "x", 1)]
)
def test_a_long_text_takes_no_longer_for_each_sentence(text: str, count: int) -> None:
    """Minutes, where each end looks at everything before it."""
    assert len(sentences(text)) == count


def test_sentences_stand_as_they_are() -> None:
    assert sentences("- It rains. Dr. Who left!") == ("It rains.", "Dr. Who left!")


def test_content_words_are_stems_that_mean_something() -> None:
    assert content_words("Why does it rain?") == {"rain"}
    assert content_words("It is raining, and rains again.") >= {"rain"}
    assert content_words("swim") == content_words("swimmers swimming") == {"swim"}
    assert content_words("skies") == {"sky"}
    assert content_words("What is it, and how do I do that?") == frozenset()
