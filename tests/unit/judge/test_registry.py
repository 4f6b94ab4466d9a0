"""Settings -> judges."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from openclaw_rl.config import load_config
from openclaw_rl.config.learning import JudgeName
from openclaw_rl.errors import ConfigError, JudgeError
from openclaw_rl.judge.compose import Composed
from openclaw_rl.judge.evidence import evidence_from_json
from openclaw_rl.judge.loop import JudgeSettings
from openclaw_rl.judge.registry import JUDGES, make_judges

ENDPOINT = ("evaluation.judge_url=http://127.0.0.1:9/v1", "evaluation.judge_model=m")


def _config(*overrides: str) -> Any:
    return load_config(env={}, overrides=overrides).config


def test_every_name_that_can_be_configured_has_a_judge() -> None:
    assert set(JUDGES) == set(get_args(JudgeName))


async def test_the_default_judge_needs_nothing() -> None:
    judge = Composed(make_judges(_config()))
    assert judge.name == "rules"
    verdict = await judge.judge(
        evidence_from_json({"request": "hi", "reply": "ho", "next": [{"role": "user", "content": "Thanks a lot!"}]})
    )
    assert verdict.score == 1


async def test_what_a_person_said_outright_comes_before_every_judge() -> None:
    line = {
        "request": "hi",
        "reply": "ho",
        "next": [{"role": "user", "content": "Thanks!"}],
        "feedback": [{"score": -1}],
    }
    assert (await Composed(make_judges(_config())).judge(evidence_from_json(line))).score == -1


async def test_several_judges_are_a_chain_in_their_order() -> None:
    config = _config("evaluation.judge=rules,endpoint", *ENDPOINT)
    judge = Composed(make_judges(config))
    assert judge.name == "rules+endpoint"
    assert [one.name for one in make_judges(config)] == ["rules", "endpoint"]
    await judge.close()


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        (["evaluation.judge=endpoint"], "evaluation.judge_url and evaluation.judge_model"),
        (["evaluation.judge=rules,endpoint", ENDPOINT[0]], "the judge endpoint needs evaluation.judge_model;"),
        (
            ["evaluation.judge_model=gpt-4"],
            "needs evaluation.judge_url; set it, or go on without it: evaluation.judge=rules",
        ),
        (
            ["evaluation.judge_model=gpt-4", "evaluation.judge_url=https://judge.example/v1"],
            "needs evaluation.judge_api_key; set it .*, or go on without it: evaluation.judge=rules",
        ),
        (["evaluation.judge=model"], "evaluation.judge_path"),
        (["evaluation.judge=function"], "evaluation.judge_function"),
    ],
)
def test_a_missing_setting_is_named(overrides: list[str], missing: str) -> None:
    with pytest.raises(ConfigError, match=missing):
        make_judges(_config(*overrides))


@pytest.mark.parametrize("name", ["self", "model"])
def test_a_judge_that_samples_needs_an_engine(name: str, tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match=f"the judge {name} needs an engine"):
        make_judges(_config(f"evaluation.judge={name}", *([f"evaluation.judge_path={tmp_path}"] * (name == "model"))))


def test_the_loop_waits_for_a_judge_longer_than_all_its_votes_on_a_turn_may_take() -> None:
    config = _config(
        "evaluation.judge=rules,endpoint", "evaluation.judge_timeout_s=7", "evaluation.num_judges=5", *ENDPOINT
    )
    assert JudgeSettings.of(config).deadline_s == 7 * 2 * 5
    assert JudgeSettings.of(_config()).deadline_s == 60 * 2 * 3
