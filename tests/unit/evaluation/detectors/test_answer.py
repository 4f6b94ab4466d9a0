"""Whether a reply is an answer at all."""

from __future__ import annotations

import pytest

from openclaw_rl.evaluation.detectors import asks_back, on_topic, refuses, repetition, substance

SKY = "Why is the sky blue?"
EGGS = "A box holds 12 eggs. How many eggs are in 4 boxes?"


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("I'm sorry, but I can't help with that.", True),
        ("I cannot assist with this request.", True),
        ("As an AI language model, I do not have feelings.", True),
        ("I’m unable to do so.", True),
        ("Birds can't help singing.", False),
        ("A refusal is when somebody says: I cannot do it. It is common.", True),
        ("It rains. It pours. It drips. I cannot help you.", False),
        ("The sky is blue.", False),
        ("", False),
    ],
)
def test_refuses(text: str, is_so: bool) -> None:
    assert refuses(text) is is_so


@pytest.mark.parametrize(
    ("text", "is_so"),
    [
        ("Could you tell me more?", True),
        ("Sure! Which sky do you mean?", True),
        ("What do you mean? Which sky? Blue air scatters light.", True),
        ("The sky is blue because of scattering. Does that help?", False),
        ("The sky is blue.", False),
        ("", False),
    ],
)
def test_asks_back(text: str, is_so: bool) -> None:
    assert asks_back(text) is is_so


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("", 0.0, 0.0),
        ("Yes.", 0.0, 0.0),
        ("yes yes yes yes yes yes yes", 0.7, 1.0),
        ("no no", 0.5, 0.5),
        ("aaaaaaaaaaaaaaaaaaaaaaaa", 1.0, 1.0),
        ("1000000000000000", 0.0, 0.0),
        ("A third is 0.33333333333333333.", 0.0, 0.0),
        (f"A googol is 1{'0' * 100}.", 0.0, 0.0),
        ("7" * 101, 1.0, 1.0),
        ("It is blue. " * 10, 0.85, 1.0),
        ("The air scatters short waves of light far more strongly than long ones, and short waves are blue.", 0.0, 0.0),
        ("A cat sat on a mat. A cat sat on a rug.", 0.2, 0.4),
    ],
)
def test_repetition(text: str, least: float, most: float) -> None:
    assert least <= repetition(text) <= most


@pytest.mark.parametrize(
    ("question", "reply", "expected"),
    [
        (SKY, "The sky scatters blue light.", 1.0),
        (SKY, "Skies scatter light.", 1.0),
        (SKY, "Because air scatters short waves of light more strongly.", 0.5),
        ("What is the sky?", "Because air scatters short waves of light more strongly.", 0.0),
        (SKY, "Because.", 0.0),
        (SKY, "It is a very important part of everyday life.", 0.0),
        (SKY, "The most ridiculed sentence ever.", 0.0),
        (SKY, "Yes.", 0.0),
        (SKY, "It is.", 0.0),
        (SKY, "", 0.0),
        (SKY, "<|im_end|>", 0.0),
        ("What is photosynthesis?", "A photosynthetic process.", 1.0),
        (EGGS, "48.", 1.0),
        (EGGS, "Forty-eight.", 1.0),
        (EGGS, "Purple monkeys dance.", 0.0),
        (EGGS, "My uncle went to town in 1999 and bought a lamp, a chair and two carpets.", 0.0),
        (EGGS, "My uncle bought all 48 eggs in town and carried them home with great care.", 1.0),
        ("Write a letter to my bank.", "Waves whisper salt under silver moons.", 0.0),
        ("Write a poem about the sea.", "Waves whisper salt under silver moons.", 0.5),
        ("Write a poem about the sea.", "The sea whispers.", 1.0),
    ],
)
def test_on_topic(question: str, reply: str, expected: float) -> None:
    assert on_topic(question, reply) == expected


@pytest.mark.parametrize(
    ("question", "reply", "expected"),
    [
        (SKY, "The air scatters blue light.", 1.0),
        (SKY, "The sky is blue.", 0.0),
        (SKY, "Yes.", 0.0),
        (SKY, "Scattering.", 1 / 3),
        (SKY, "", 0.0),
        (EGGS, "48", 0.5),
        (EGGS, "There are 48 eggs.", 1.0),
        ("How much water should I drink?", "Drink plenty whenever thirst comes along.", 1.0),
    ],
)
def test_substance(question: str, reply: str, expected: float) -> None:
    assert substance(question, reply) == pytest.approx(expected)
