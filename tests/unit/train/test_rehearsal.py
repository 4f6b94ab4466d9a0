"""Requests with a hint, answered anew by a real engine; and the step that learns from these answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import torch

from openclaw_rl.engine.embedded.engine import EmbeddedEngine
from openclaw_rl.engine.embedded.loading import load_engine
from openclaw_rl.engine.embedded.options import EmbeddedOptions
from openclaw_rl.train.rehearsal import Rehearsal
from openclaw_rl.train.trainer import Trainer
from openclaw_rl.types import BASE_VERSION, ScoreRequest, VersionSpan
from tests.tiny import build_tiny_model
from tests.unit.train.made import order, sample

LESSONS = (sample(1), sample(2, num_hints=0), sample(3), sample(4, kind="rewrite"))
"""The first and the third have hints and answers of their own."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture
async def engine(model: Path) -> AsyncIterator[EmbeddedEngine]:
    opened = await asyncio.to_thread(load_engine, model, EmbeddedOptions())
    yield opened
    await opened.close()


async def test_requests_with_a_hint_are_answered_anew(engine: EmbeddedEngine) -> None:
    found = await Rehearsal(engine, num=5, stop_token_ids=(2,))(LESSONS, BASE_VERSION, seed="a")
    assert [one.index for one in found] == [1, 3, 1, 3, 1]
    assert len({one.id for one in found}) == 5, "a step knows its samples by their names"
    for one in found:
        lesson = LESSONS[one.index - 1]
        assert (one.kind, one.w_rl, one.reward, one.w_opd) == ("rehearsal", 0.0, 0.0, lesson.w_opd)
        assert (one.prompt_ids, one.candidates, one.line) == (lesson.prompt_ids, lesson.candidates, lesson.line)
        size = len(one.response_ids)
        assert 0 < size <= len(lesson.response_ids)
        assert one.version_spans == (VersionSpan(BASE_VERSION, 0, size),)
        request = ScoreRequest(
            request_id="score",
            sequences=((*one.prompt_ids, *one.response_ids),),
            starts=(len(one.prompt_ids),),
            temperature=lesson.temperature,
            version=BASE_VERSION,
        )
        (scored,) = await engine.score(request)
        assert one.logprobs == pytest.approx(scored.logprobs, abs=1e-4)
    assert found[0].response_ids != found[2].response_ids, "the same request again gets another answer"


async def test_the_same_seed_gets_the_same_answers(engine: EmbeddedEngine) -> None:
    ask = Rehearsal(engine, num=3, stop_token_ids=())
    first, again, other = [await ask(LESSONS, BASE_VERSION, seed=seed) for seed in ("a", "a", "b")]
    said, said_again = ([one.response_ids for one in each] for each in (first, again))
    assert said == said_again
    assert said != [one.response_ids for one in other]


async def test_nothing_is_asked_where_nothing_has_a_hint_or_the_version_is_not_loaded(engine: EmbeddedEngine) -> None:
    ask = Rehearsal(engine, num=3, stop_token_ids=())
    assert await ask(LESSONS[1:2], BASE_VERSION, seed="a") == []
    assert await ask(LESSONS, "v7", seed="a") == []


async def test_a_step_learns_from_them_and_counts_no_reward_of_theirs(
    engine: EmbeddedEngine, model: Path, tmp_path: Path
) -> None:
    rehearsed = await Rehearsal(engine, num=4, stop_token_ids=())(LESSONS, BASE_VERSION, seed="a")
    trainer = Trainer(model, device=torch.device("cpu"), dtype=torch.float32)
    alone = trainer.step(order(tmp_path, 1, *LESSONS))
    both = trainer.step(order(tmp_path / "other", 1, *LESSONS, *rehearsed))
    assert both.metrics["reward/mean"] == alone.metrics["reward/mean"]
    assert both.sha256 != alone.sha256
