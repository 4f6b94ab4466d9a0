"""Answers that a trainer writes: the tokens that the model's own distribution has, whoever reads on."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from openclaw_rl.train.passes.reader import NetworkReader, RereadingFollower
from openclaw_rl.train.passes.sequences import Sequenced
from openclaw_rl.train.worker.speaking import answers
from openclaw_rl.train.worker.student import AdapterStudent
from tests.factories.networks import random_adapter, random_network, shape

PROMPTS = ((1, 40, 41, 42), (1, 7), (1, 9, 9, 9, 9, 30))


class Rereading(NetworkReader):
    """The same weights, without memory."""

    def follower(self) -> RereadingFollower:
        return RereadingFollower(self)


@pytest.fixture(scope="module")
def student() -> AdapterStudent:
    arch = shape("llama")
    return AdapterStudent(random_network(arch), random_adapter(arch), dropout=0.0)


@pytest.mark.parametrize("temperatures", [None, [0.8, 1.0, 1.2]])
def test_what_was_read_need_not_be_read_again(student: AdapterStudent, temperatures: list[float] | None) -> None:
    reader = student.reader
    assert isinstance(reader, NetworkReader)
    anew = Rereading(reader._network, reader._lora)
    said, again = (
        answers(one, PROMPTS, stop_token_ids=(), max_tokens=12, temperatures=temperatures, seed=3)
        for one in (reader, anew)
    )
    assert said == again
    assert {len(ids) for ids in said} == {12}


def test_an_answer_ends_with_its_stop_token_and_the_others_go_on(student: AdapterStudent) -> None:
    said = answers(student.reader, PROMPTS, stop_token_ids=(), max_tokens=6)
    stop = said[0][2]
    ended = answers(student.reader, PROMPTS, stop_token_ids=(stop,), max_tokens=6)
    assert ended[0] == said[0][: said[0].index(stop) + 1]
    for before, after in zip(said[1:], ended[1:], strict=True):
        assert after == (before[: before.index(stop) + 1] if stop in before else before)


def test_tokens_are_drawn_as_often_as_they_are_likely(student: AdapterStudent) -> None:
    """A third of a thousand draws of the first token, against the reader's own chances at that temperature."""
    prompt, temperature, num_drawn = PROMPTS[0], 0.5, 300
    drawn = answers(
        student.reader, [prompt] * num_drawn, stop_token_ids=(), max_tokens=1, temperatures=[temperature] * num_drawn
    )
    counted = Counter(ids[0] for ids in drawn)
    with torch.no_grad():
        (reading,) = student.reader.read([Sequenced(prompt, (0,))])
        ids, logprobs = reading.rows(temperature).top_k(5)
    for token, logprob in zip(ids[0].tolist(), logprobs[0].exp().tolist(), strict=True):
        assert abs(counted[token] / num_drawn - logprob) < 4 * (logprob * (1 - logprob) / num_drawn) ** 0.5 + 0.01


def test_the_same_seed_says_the_same(student: AdapterStudent) -> None:
    def say(seed: int) -> list[tuple[int, ...]]:
        return answers(student.reader, PROMPTS, stop_token_ids=(), max_tokens=8, temperatures=[1.0] * 3, seed=seed)

    assert say(1) == say(1) != say(2)


def test_nobody_asks_nothing(student: AdapterStudent) -> None:
    assert answers(student.reader, [], stop_token_ids=(), max_tokens=8) == []
