"""docs/extend.md is true: every example is short, and runs through the registry or the import path that it names."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from openclaw_rl.config import Config, load_config
from openclaw_rl.credit.registry import CreditSettings
from openclaw_rl.engine.registry import ENGINES, EngineKind, capabilities_of, make_host
from openclaw_rl.errors import EngineRefused
from openclaw_rl.gateway.api.metrics import Metrics
from openclaw_rl.judge.registry import JUDGES, JudgeMaker, make_judges
from openclaw_rl.model.files import ModelFiles
from openclaw_rl.plugins import load_named
from openclaw_rl.protocols import GroupRule
from openclaw_rl.store import SqliteStore
from openclaw_rl.train.losses import check_loss
from openclaw_rl.train.objective.custom import load_loss
from openclaw_rl.train.objective.hybrid import HybridLoss
from openclaw_rl.train.objective.rows import DenseRows
from openclaw_rl.types import (
    JUDGING_PAUSED,
    Attempt,
    AttemptStep,
    Episode,
    Evidence,
    GenerateRequest,
    Judgement,
    Message,
    Sampling,
    ScoreRequest,
    Skip,
    Verdict,
)
from openclaw_rl.wiring.learning import make_judge_loop
from tests.factories.conversations import make_child, make_turn, put_conversation
from tests.pages import DOCS, blocks
from tests.unit.train.objective.cases import draw, settings

PAGE = DOCS / "extend.md"
MAX_LINES = 42
PROGRAMS = {re.match(r"# (\S+\.py)", block)[1]: block for block in blocks(PAGE, "python")}  # type: ignore[index]
"""By the name of the file, which is the first word of each."""

ASKED = Evidence(
    request=(Message(role="user", content="What is gravity?"),),
    reply=Message(role="assistant", content="Gravity pulls. " * 40),
    following=(Message(role="user", content="hm"),),
)


def saved(name: str, folder: Path) -> Path:
    (program,) = (text for path, text in PROGRAMS.items() if Path(path).name == name)
    file = folder / name
    file.write_text(program)
    return file


def configured(*overrides: str) -> Config:
    return load_config(overrides=overrides).config


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_example_is_short(name: str) -> None:
    assert len(PROGRAMS[name].splitlines()) <= MAX_LINES


async def test_the_reward_function_judges(tmp_path: Path) -> None:
    path = f"{saved('my_reward.py', tmp_path)}:Politeness"
    (judge,) = make_judges(configured(f"evaluation.judge_function={path}", "evaluation.judge=function"))
    verdict = await judge.judge(ASKED)
    assert (verdict.outcome, verdict.score, verdict.reward) == ("scored", -1, -0.5)
    polite = replace(ASKED, reply=Message(role="assistant", content="Yes, please."))
    assert (await judge.judge(polite)).reward == 0.5


async def judgement_of(config: Config, folder: Path) -> Judgement:
    """Of the judge loop with its default settings, on a reply that was thanked for."""
    async with await SqliteStore.open(folder / "data") as store:
        first = make_turn(0)
        await put_conversation(store, [first, make_child(first, "Thanks, that is perfect!")])
        loop = make_judge_loop(config, store.lessons, make_judges(config), Metrics())
        assert config.evaluation.canaries
        assert await loop.work() == 1
        assert await store.lessons.flag(JUDGING_PAUSED) is None
        (judgement,) = await store.lessons.judgements(first.session)
        return judgement


async def test_the_reward_function_is_believed_whatever_it_measures(tmp_path: Path) -> None:
    path = f"{saved('my_reward.py', tmp_path)}:Politeness"
    judgement = await judgement_of(configured(f"evaluation.judge_function={path}"), tmp_path)
    assert (judgement.judge, judgement.verdict.reward) == ("function", -0.5)


async def test_a_newcomers_judge_is_believed_whatever_it_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = load_named(f"{saved('brevity.py', tmp_path)}:BrevityJudge", "the test")
    monkeypatch.setitem(JUDGES, "brevity", JudgeMaker(lambda means: made(max_characters=0)))  # type: ignore[misc]
    config = configured()
    chosen = config.evaluation.model_copy(update={"judge": ("brevity",)})
    judgement = await judgement_of(config.model_copy(update={"evaluation": chosen}), tmp_path)
    assert (judgement.judge, judgement.verdict.score) == ("brevity", -1)


async def test_the_judge_judges_once_it_has_its_line_in_the_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, made = load_named(f"{saved('brevity.py', tmp_path)}:BrevityJudge", "the test")
    monkeypatch.setitem(JUDGES, "brevity", JudgeMaker(lambda means: made()))  # type: ignore[misc]
    config = configured()
    chosen = config.evaluation.model_copy(update={"judge": ("brevity",)})
    (judge,) = make_judges(config.model_copy(update={"evaluation": chosen}))
    verdict = await judge.judge(ASKED)
    assert (judge.name, verdict.score, verdict.hints) == ("brevity", -1, ("Answer in a few sentences.",))
    brief = replace(ASKED, reply=Message(role="assistant", content="It pulls."))
    assert (await judge.judge(brief)).score == 1
    after_a_tool = replace(ASKED, following=(Message(role="tool", content="exit 1", tool_call_id="c"),))
    assert (await judge.judge(after_a_tool)).outcome == "abstained"
    judge.forget()
    await judge.close()


def test_the_loss_descends_on_what_was_rewarded(tmp_path: Path) -> None:
    config = configured(f"training.custom_loss={saved('my_loss.py', tmp_path)}:loss")
    assert config.training.custom_loss is not None
    check_loss(config.training.custom_loss)
    function, _ = load_loss(config.training.custom_loss)
    loss = HybridLoss(settings(), function)
    case = draw(3, w_opd=0.0)
    logits = case.old.clone().requires_grad_()
    loss_R, metrics = loss(DenseRows(logits), case.tensors, case.target(loss))
    assert float(metrics["ratio"]) == pytest.approx(1.0), "nothing moved yet"
    loss_R.sum().backward()
    moved = torch.log_softmax(case.old - 0.01 * logits.grad, -1) - torch.log_softmax(case.old, -1)  # type: ignore[operator]
    gained = moved.gather(-1, case.tensors.response_ids.unsqueeze(-1)).squeeze(-1)
    rewarded = case.tensors.advantages != 0
    assert bool((gained.sign() == case.tensors.advantages.sign())[rewarded].all())


def test_the_credit_rule_weighs_turns_and_groups(tmp_path: Path) -> None:
    config = configured(f"training.method={saved('my_rule.py', tmp_path)}:LeaveOneOut")
    rule = CreditSettings.of(config.training, config.rollout).rule
    assert rule.weigh(Verdict(outcome="failed", reason="down")) is Skip.JUDGE_FAILED
    assert rule.weigh(Verdict(outcome="scored", score=0)) is Skip.NEUTRAL
    weights = rule.weigh(Verdict(outcome="scored", score=1, value=0.37))
    assert not isinstance(weights, Skip)
    assert (weights.reward, weights.w_rl, weights.w_opd) == (0.37, config.training.binary_weight, 0.0)
    assert isinstance(rule, GroupRule)
    assert rule.weigh_group([attempt(0, 1.0, 2), attempt(1, 0.0, 1), attempt(2, 0.5, 0)]) == [[0.75, 0.75], [-0.75], []]


def attempt(number: int, reward: float, num_steps: int) -> Attempt:
    episode = Episode(id=f"e{number}", environment="box", task="t", group="g", attempt=number, group_size=3)
    steps = tuple(AttemptStep(session=f"s{number}", index=index, score=0) for index in range(num_steps))
    return Attempt(episode=episode, reward=reward, steps=steps)


async def test_the_engine_answers_from_a_process_of_its_own_once_it_has_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, host_of = load_named(f"{saved('parrot.py', tmp_path)}:parrot_host", "the test")
    monkeypatch.setitem(ENGINES, "parrot", EngineKind(module.PARROT, host_of))  # type: ignore[misc]
    chosen: Any = configured().engine.model_copy(update={"type": "parrot"})
    assert not capabilities_of(chosen).has_weights
    host = make_host(chosen, any_model(tmp_path), tmp_path / "e.sock")
    running = asyncio.create_task(host.run())
    try:
        state = await host.wait_ready()
        assert (state.model, host.is_ready, host.last_error) == ("parrot", True, None)
        request = GenerateRequest(request_id="r", token_ids=(5, 7), sampling=Sampling(max_tokens=9))
        deltas = [delta async for delta in host.engine.generate(request)]
        assert [delta.token_ids for delta in deltas] == [(7, 7, 7)]
        with pytest.raises(EngineRefused, match="neither scores nor learns"):
            await host.engine.score(ScoreRequest(request_id="s", sequences=((1, 2),), starts=(1,)))
    finally:
        await host.stop()
        await running


def any_model(folder: Path) -> ModelFiles:
    """A parrot has no weights, and looks at none."""
    return ModelFiles(
        name="none",
        path=folder,
        tokenizer_path=folder,
        architecture="none",
        context_window=1,
        vocab_size=1,
        stop_ids=(),
        weights=(),
    )
